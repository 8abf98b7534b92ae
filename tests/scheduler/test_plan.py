from hypothesis import given
from hypothesis import strategies as st

from scheduler.plan import LEAST_PREFILL, PADDING, Pending, Room, chunk, overdrawn, plan

pendings = st.builds(
    lambda computed, prompt, replay: (computed, prompt, replay if prompt == 0 else 0),
    st.integers(0, 500),
    st.sampled_from([0, 0, 0, 1, 2, 3, 17, 40, 300]),
    st.integers(1, 3),
)


Situation = tuple[list[Pending], list[Pending], Room]


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    slots = draw(st.integers(1, 12))
    used = draw(st.lists(st.integers(0, slots - 1), unique=True))
    running = []
    for slot in used:
        computed, prompt, replay = draw(pendings)
        if prompt == 1:  # only a prompt that is one token long is ever left with one
            computed = 0
        held = computed + draw(st.sampled_from([0, 0, 50]))
        turn = (draw(st.integers(0, 9)), slot)
        running.append(Pending(f"r{slot}", slot, computed, prompt, replay, held=held, turn=turn))
    free = [slot for slot in range(slots) if slot not in used][: draw(st.integers(0, 6))]
    waiting = [
        Pending(f"w{slot}", slot, 0, draw(st.integers(1, 300)), 0, waits=True, turn=(draw(st.integers(0, 9)), slot))
        for slot in free
    ]
    waiting.sort(key=lambda p: p.turn)
    promised = sum(p.promised for p in [*running, *waiting])
    tokens = max(sum(p.least for p in running), promised if waiting else draw(st.integers(0, 4000)))
    return running, waiting, Room(draw(st.integers(1, 128)), draw(st.integers(0, 128)), tokens)


def prompts(situation: Situation) -> list[Pending]:
    return sorted((p for p in [*situation[0], *situation[1]] if p.prompt_rows), key=lambda p: p.turn)


@given(st.integers(2, 2000), st.lists(st.integers(3, 300), min_size=1))
def test_a_prompt_is_cut_into_chunks_of_at_least_two_rows(pending: int, rooms: list[int]) -> None:
    turn = 0
    while pending:
        count = chunk(pending, rooms[turn % len(rooms)])
        assert 2 <= count <= rooms[turn % len(rooms)]
        pending -= count
        turn += 1


def test_a_prompt_of_one_token_is_one_row() -> None:
    assert chunk(1, 10) == 1


@given(situations())
def test_every_decoding_request_is_in_every_step(situation: Situation) -> None:
    slices = {s.id: s for s in plan(*situation).slices}
    for p in situation[0]:
        if p.prompt_rows == 0:
            assert slices[p.id].decodes
            assert slices[p.id].count == 1
            assert slices[p.id].samples == (p.replay_rows == 1)


@given(situations())
def test_the_prompt_whose_turn_it_is_always_advances(situation: Situation) -> None:
    for first in prompts(situation)[:1]:
        assert any(s.id == first.id for s in plan(*situation).slices)


@given(situations())
def test_a_step_stays_within_its_rows_and_its_padding(situation: Situation) -> None:
    running, _, room = situation
    step = plan(*situation)
    decoding = sum(p.prompt_rows == 0 for p in running)
    assert sum(s.count for s in step.slices) <= max(room.rows, decoding + LEAST_PREFILL)
    assert sum(s.count for s in step.slices) - decoding <= max(room.prefill, LEAST_PREFILL)
    prefill = [s for s in step.slices if not s.decodes]
    if len(prefill) > 1:
        width = prefill[-1].slot - prefill[0].slot + 1
        assert width * max(s.count for s in prefill) <= PADDING * max(room.rows, LEAST_PREFILL)


@given(situations())
def test_a_step_stays_within_its_tokens(situation: Situation) -> None:
    running, _, room = situation
    after = {p.id: p.held for p in running}
    for s in plan(*situation).slices:
        after[s.id] = max(after.get(s.id, 0), s.start + s.count)
    assert sum(after.values()) <= room.tokens


@given(situations())
def test_slices_are_sorted_unique_and_start_where_the_request_stands(situation: Situation) -> None:
    running, waiting, _ = situation
    step = plan(*situation)
    known = {p.id: p for p in [*running, *waiting]}
    order = [(not s.decodes, s.slot) for s in step.slices]
    assert order == sorted(set(order))
    assert len({s.slot for s in step.slices}) == len(step.slices)
    for s in step.slices:
        p = known[s.id]
        assert (s.start, s.slot) == (p.computed, p.slot)
        assert s.samples == (s.count == p.prompt_rows + p.replay_rows)


@given(situations())
def test_who_waits_is_admitted_in_turn(situation: Situation) -> None:
    waiting = situation[1]
    admitted = plan(*situation).admitted
    assert list(admitted) == [p.id for p in waiting[: len(admitted)]]


@given(situations(), st.integers(0, 3000))
def test_the_youngest_make_way_until_everybody_left_can_advance_and_no_longer(
    situation: Situation, tokens: int
) -> None:
    running = situation[0]
    gone = overdrawn(running, tokens)
    left = running[: len(running) - len(gone)]
    assert [*left, *reversed(gone)] == running
    assert sum(p.least for p in left) <= tokens or left == running[:1]
    assert not gone or sum(p.least for p in [*left, gone[-1]]) > tokens
