from hypothesis import given
from hypothesis import strategies as st

from scheduler.plan import LEAST_PREFILL, Pending, Room, overdrawn, plan

pendings = st.tuples(
    st.integers(0, 500),  # computed
    st.sampled_from([1, 1, 1, 2, 3, 17, 40, 300]),  # pending
    st.booleans(),  # whether it has a token of its own
)


Situation = tuple[list[Pending], list[Pending], Room]


@st.composite
def situations(draw: st.DrawFn) -> Situation:
    slots = draw(st.integers(1, 12))
    used = draw(st.lists(st.integers(0, slots - 1), unique=True))
    running = []
    for slot in used:
        computed, rows, generated = draw(pendings)
        held = computed + draw(st.sampled_from([0, 0, 50]))
        turn = (draw(st.integers(0, 9)), slot)
        running.append(Pending(f"r{slot}", slot, computed, rows, generated, held=held, turn=turn))
    free = [slot for slot in range(slots) if slot not in used][: draw(st.integers(0, 6))]
    waiting = [
        Pending(f"w{slot}", slot, *draw(pendings), waits=True, turn=(draw(st.integers(0, 9)), slot)) for slot in free
    ]
    waiting.sort(key=lambda p: p.turn)
    promised = sum(p.promised for p in [*running, *waiting])
    tokens = max(sum(p.least for p in running), promised if waiting else draw(st.integers(0, 4000)))
    return running, waiting, Room(draw(st.integers(1, 128)), draw(st.integers(0, 128)), tokens)


def prefilled(situation: Situation) -> list[Pending]:
    return sorted((p for p in [*situation[0], *situation[1]] if p.waits or not p.decodes), key=lambda p: p.turn)


@given(situations())
def test_every_decoding_request_is_in_every_step(situation: Situation) -> None:
    slices = {s.id: s for s in plan(*situation).slices}
    for p in situation[0]:
        if p.decodes:
            assert slices[p.id].decodes
            assert slices[p.id].count == 1
            assert slices[p.id].samples


@given(situations())
def test_whoever_s_turn_it_is_always_advances(situation: Situation) -> None:
    for first in prefilled(situation)[:1]:
        assert any(s.id == first.id for s in plan(*situation).slices)


@given(situations())
def test_a_step_stays_within_its_rows(situation: Situation) -> None:
    running, _, room = situation
    step = plan(*situation)
    decoding = sum(p.decodes for p in running)
    assert sum(s.count for s in step.slices) <= max(room.rows, decoding + LEAST_PREFILL)
    assert sum(s.count for s in step.slices) - decoding <= max(room.prefill, LEAST_PREFILL)


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
    order = [s.slot for s in step.slices]
    assert order == sorted(set(order))
    for s in step.slices:
        p = known[s.id]
        assert (s.start, s.slot) == (p.computed, p.slot)
        assert s.samples == (s.count == p.rows)
        assert s.decodes == (p.generated and p.rows == 1)


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
