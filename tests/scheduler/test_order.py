from hypothesis import given
from hypothesis import strategies as st

from scheduler.engine import PackedEngine
from scheduler.order import NEW_TOKEN, PROMPT_TOKEN, Order, Shares
from scheduler.params import SamplingParams
from scheduler.request import Request
from tests.scheduler.fake_model import solo
from tests.scheduler.test_engine import Ledger, engine, run_dry

EIGHTHS = st.integers(0, 800).map(lambda count: count / 8)
"""What floats add up without rounding."""


def request(id_: str, rows: int, count: int = 1, *, key: str = "", priority: int = 0) -> Request:
    params = SamplingParams(max_tokens=count, temperature=0.0)
    return Request(id_, (ord(id_[0]) % 90,) * rows, params, key=key, priority=priority)


def ends(packed: PackedEngine) -> list[str]:
    """The ids in the order in which they end."""
    found = []
    while not packed.idle:
        found += [event.id for event in packed.step().events if event.finish]
        packed.check()
    return found


def test_short_prompts_are_not_stuck_behind_a_long_one() -> None:
    packed, _ = engine(slots=8, step_rows=16)
    packed.add(request("long", 110))
    packed.step()
    for i in range(5):
        packed.add(request(f"{i}", 5))
    assert ends(packed)[-1] == "long"


def test_a_long_prompt_is_overtaken_only_by_what_comes_before_as_many_rows_as_it_has_are_computed() -> None:
    packed, _ = engine(slots=8, step_rows=16)
    packed.add(request("long", 100))
    rows = number = late = 0
    ended = list[str]()
    while "long" not in ended:
        for _ in range(3):  # more than a step can do, and always more of it
            number += 1
            late = late or number * (rows >= 100)
            packed.add(request(f"{number}", 8))
        report = packed.step()
        rows += report.prefill_rows
        ended += [event.id for event in report.events if event.finish]
    assert late > 0
    assert all(int(id_) < late for id_ in ended if id_ != "long")


def test_a_lower_priority_goes_first_and_makes_way_last() -> None:
    packed, _ = engine(slots=1, step_rows=32)
    for name, priority in (("a", 1), ("b", 0), ("c", -1)):
        packed.add(request(name, 5, priority=priority))
    assert ends(packed) == ["c", "b", "a"]
    packed, _ = engine(slots=2, step_rows=64, tokens=100)
    ledger = Ledger()
    packed.add(request("later", 40, 50, priority=1))
    ledger.read(packed.step())
    packed.add(request("first", 40, 50))
    run_dry(packed, ledger)
    assert ledger.tokens["later"] == solo([ord("l") % 90] * 40, 50)
    summaries = {id_: end[0].summary for id_, end in ledger.ends.items()}
    assert summaries["first"] is not None
    assert summaries["later"] is not None
    assert summaries["first"].ended < summaries["later"].ended


@given(st.lists(st.tuples(st.sampled_from("abc"), EIGHTHS), max_size=60))
def test_keys_that_always_want_more_are_served_alike_within_the_largest_request(costs: list[tuple[str, float]]) -> None:
    shares = Shares()
    for key in "abc":
        shares.join(key)
    for _, cost in costs:
        shares.charge(min("abc", key=shares.served), cost)
    served = [shares.served(key) for key in "abc"]
    assert max(served) - min(served) <= max((cost for _, cost in costs), default=0)


@given(st.floats(0, 1000), st.floats(0, 1000))
def test_who_comes_after_a_pause_has_saved_nothing_up(before: float, meanwhile: float) -> None:
    shares = Shares()
    shares.join("a")
    shares.charge("a", before)
    shares.join("b")
    shares.leave("b")
    shares.charge("a", meanwhile)
    shares.join("b")
    assert shares.served("b") == shares.served("a")


def test_a_key_that_sends_ten_times_as_much_gets_no_more_while_both_wait() -> None:
    packed, _ = engine(slots=2, step_rows=32)
    for i in range(40):
        packed.add(request(f"much{i}", 10, 5, key="much"))
    for i in range(4):
        packed.add(request(f"few{i}", 10, 5, key="few"))
    order = ends(packed)
    last = max(order.index(f"few{i}") for i in range(4))
    assert last <= 4 + 4 + 2  # as many of the other key's, and what ran when it came


def test_an_order_forgets_nobody_and_charges_each_token_once() -> None:
    order, one = Order(), request("a", 10, 5, key="k")
    order.join(one)
    order.computed(one, 10, prefill=True, new=True)
    order.computed(one, 1, prefill=False, new=True)
    one.preempted = 1
    order.computed(one, 10, prefill=True, new=False)
    order.computed(one, 1, prefill=False, new=False)
    assert order.shares.served("k") == 10 * PROMPT_TOKEN + NEW_TOKEN
