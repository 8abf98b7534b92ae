from hypothesis import given
from hypothesis import strategies as st

from scheduler.plan import LEAST_PREFILL, PADDING, Pending, StepPlan, chunk, plan

pendings = st.builds(
    lambda computed, prompt, replay: (computed, prompt, replay if prompt == 0 else 0),
    st.integers(0, 500),
    st.sampled_from([0, 0, 0, 1, 2, 3, 17, 40, 300]),
    st.integers(1, 3),
)


@st.composite
def situations(draw: st.DrawFn) -> tuple[list[Pending], list[Pending], list[int], int]:
    slots = draw(st.integers(1, 12))
    used = draw(st.lists(st.integers(0, slots - 1), unique=True))
    running = []
    for slot in used:
        computed, prompt, replay = draw(pendings)
        if prompt == 1:  # only a prompt that is one token long is ever left with one
            computed = 0
        running.append(Pending(f"r{slot}", slot, computed, prompt, replay))
    waiting = [Pending(f"w{i}", None, 0, draw(st.integers(1, 300)), 0) for i in range(draw(st.integers(0, 6)))]
    free = [slot for slot in range(slots) if slot not in used]
    return running, waiting, free, draw(st.integers(1, 128))


def planned(running: list[Pending], waiting: list[Pending], free: list[int], rows: int) -> StepPlan:
    return plan(running, waiting, free, rows)


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
def test_every_decoding_request_is_in_every_step(
    situation: tuple[list[Pending], list[Pending], list[int], int],
) -> None:
    running = situation[0]
    slices = {s.id: s for s in planned(*situation).slices}
    for p in running:
        if p.prompt_rows == 0:
            assert slices[p.id].decodes
            assert slices[p.id].count == 1
            assert slices[p.id].samples == (p.replay_rows == 1)


@given(situations())
def test_some_prompt_always_advances(situation: tuple[list[Pending], list[Pending], list[int], int]) -> None:
    running, waiting, free, _ = situation
    step = planned(*situation)
    prompts = [p for p in running if p.prompt_rows]
    if prompts or (waiting and free):
        first = prompts[0].id if prompts else waiting[0].id
        assert any(s.id == first for s in step.slices)


@given(situations())
def test_a_step_stays_within_its_rows_and_its_padding(
    situation: tuple[list[Pending], list[Pending], list[int], int],
) -> None:
    running, _, _, rows = situation
    step = planned(*situation)
    decoding = sum(p.prompt_rows == 0 for p in running)
    assert sum(s.count for s in step.slices) <= max(rows, decoding + LEAST_PREFILL)
    prefill = [s for s in step.slices if not s.decodes]
    if len(prefill) > 1:
        width = prefill[-1].slot - prefill[0].slot + 1
        assert width * max(s.count for s in prefill) <= PADDING * max(rows, LEAST_PREFILL)


@given(situations())
def test_slices_are_sorted_unique_and_start_where_the_request_stands(
    situation: tuple[list[Pending], list[Pending], list[int], int],
) -> None:
    running, waiting, free, _ = situation
    step = planned(*situation)
    known = {p.id: p for p in [*running, *waiting]}
    order = [(not s.decodes, s.slot) for s in step.slices]
    assert order == sorted(set(order))
    assert len({s.slot for s in step.slices}) == len(step.slices)
    for s in step.slices:
        p = known[s.id]
        assert s.start == p.computed
        assert s.slot == p.slot if p.slot is not None else s.slot in free
        assert s.samples == (s.count == p.prompt_rows + p.replay_rows)


@given(situations())
def test_waiting_requests_are_admitted_first_come_first_served(
    situation: tuple[list[Pending], list[Pending], list[int], int],
) -> None:
    waiting = situation[1]
    admitted = planned(*situation).admitted
    assert list(admitted) == [p.id for p in waiting[: len(admitted)]]
