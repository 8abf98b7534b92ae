import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler.placing import OWN_ROWS, Place, Placing
from scheduler.slots import Prefix, SlotPool
from scheduler.tokens import TokenIds

tokens = st.lists(st.integers(0, 2), max_size=30).map(lambda ids: np.array(ids, np.int32))


def ids(*numbers: int) -> TokenIds:
    return np.array(numbers, np.int32)


def placed(placing: Placing, tokens: TokenIds, need: int, salt: str, most: int = 0) -> Place | None:
    return placing.place(placing.match(tokens, salt), need, most)


def pool_with(*prefixes: tuple[int, TokenIds], slots: int = 4, budget: int = 1000) -> SlotPool:
    """Prefixes in slots, the least recently used first."""
    pool = SlotPool(slots, budget)
    for slot, prefix in prefixes:
        pool.take(slot, "a")
        pool.hold(slot, len(prefix))
        pool.give_back(slot, "a", Prefix(slot, "", prefix))
    return pool


def test_an_empty_slot_comes_before_one_with_a_prefix_and_of_those_the_least_recently_used() -> None:
    placing = Placing(pool_with((2, ids(1, 1)), (0, ids(2, 2))), [], 0)
    slots = [place.slot for _ in range(4) if (place := placed(placing, ids(9, 9, 9), 4, "")) is not None]
    assert slots == [1, 3, 2, 0]
    assert placed(placing, ids(9), 2, "") is None


def test_a_prefix_of_which_little_is_shared_is_copied_while_there_is_another_slot() -> None:
    long = ids(*range(50))
    assert placed(Placing(pool_with((0, long)), [], 0), long[:10], 11, "") == Place(1, 9, 0)
    assert placed(Placing(pool_with((0, long), slots=1), [], 0), long[:10], 11, "") == Place(0, 9, 0)


def test_a_prefix_that_two_want_is_copied_for_the_first_and_stays_until_then() -> None:
    long = ids(*range(50))
    placing = Placing(pool_with((0, long), slots=2), [], 0)
    assert placed(placing, ids(*range(10), 77, 78), 13, "") == Place(1, 10, 0)
    assert placed(placing, ids(*range(40), 77, 78), 43, "") is None


def test_a_copy_that_the_budget_does_not_hold_beside_its_source_is_not_made() -> None:
    long = ids(*range(50))
    assert placed(Placing(pool_with((0, long), budget=55), [], 0), long[:10], 11, "") == Place(1)


def test_memory_goes_with_a_slot_as_far_as_it_is_needed_and_further_while_there_is_plenty() -> None:
    long = ids(*range(50))
    other = ids(99, 98, 97)
    assert placed(Placing(pool_with((0, long), slots=1), [], 0), other, 4, "", 30) == Place(0, keep=30)
    assert placed(Placing(pool_with((0, long), slots=1), [], 0), other, 4, "", 80) == Place(0, keep=50)
    assert placed(Placing(pool_with((0, long), slots=1, budget=99), [], 0), other, 4, "", 30) == Place(0, keep=4)
    assert placed(Placing(pool_with((0, long), slots=1), [], 980), other, 4, "", 30) == Place(0, keep=4)


@given(st.data())
def test_places_are_distinct_their_sources_stay_and_all_of_it_is_within_the_budget(data: st.DataObject) -> None:
    slots, budget = data.draw(st.integers(1, 6)), data.draw(st.integers(60, 200))
    pool = SlotPool(slots, budget)
    running, promised = [], 0
    for slot in range(slots):
        held, content = data.draw(st.integers(0, 5)), data.draw(tokens)
        if promised + pool.reusable + len(content) + held + 1 > budget or not data.draw(st.booleans()):
            continue
        pool.take(slot, f"{slot}")
        pool.hold(slot, len(content) + held)
        if data.draw(st.booleans()):
            running.append(Prefix(slot, "", content))
            promised += len(content) + held + 1
        else:
            pool.give_back(slot, f"{slot}", Prefix(slot, "", content))
    placing, places, needs = Placing(pool, running, promised), [], []
    for prompt in data.draw(st.lists(tokens.filter(len), max_size=6)):
        most = data.draw(st.integers(0, 60))
        place = placed(placing, prompt, len(prompt) + 1, "", most)
        if place is not None:
            places.append(place)
            needs.append(max(len(prompt) + 1, place.keep))
            assert place.keep <= min(pool.held(place.slot), max(len(prompt) + 1, most))
            assert place.given <= max(len(prompt) - OWN_ROWS, 0)
    kept = {prefix.slot for prefix in pool.kept}
    taken = {place.slot for place in places}
    pins = {place.source for place in places if place.source in kept} - {p.slot for p in places if p.slot == p.source}
    assert len(taken) == len(places)
    assert not taken & {prefix.slot for prefix in running}
    assert not pins & taken
    own = [max(n, pool.held(p.slot)) if p.slot == p.source else n for p, n in zip(places, needs, strict=True)]
    assert not places or promised + sum(own) + sum(pool.held(slot) for slot in pins if slot is not None) <= budget
