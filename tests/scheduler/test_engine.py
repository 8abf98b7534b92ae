import sys
from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.config import EngineConfig
from scheduler.engine import PackedEngine, StepReport
from scheduler.errors import EngineDown, RequestFailed, StepFailed
from scheduler.params import SamplingParams
from scheduler.plan import LEAST_PREFILL
from scheduler.request import Event, Finish, Request
from tests.scheduler.fake_model import VOCABULARY, FakeModel, solo

CONTEXT = 120


@dataclass
class Ledger:
    """What the outside has seen of each request."""

    tokens: dict[str, list[int]] = field(default_factory=dict)
    ends: dict[str, list[Event]] = field(default_factory=dict)

    def read(self, report: StepReport) -> None:
        for event in report.events:
            assert event.id not in self.ends, f"{event.id} speaks after its end"
            self.tokens.setdefault(event.id, []).extend(event.tokens)
            if event.finish is not None:
                self.ends[event.id] = [event]


def engine(
    slots: int = 4, step_rows: int = 16, *, tokens: int = sys.maxsize, reuse: bool = False
) -> tuple[PackedEngine, FakeModel]:
    config = EngineConfig(
        slots=slots, context=CONTEXT, step_rows=step_rows, threads=1, tokens=tokens, prefix_reuse=reuse
    )
    model = FakeModel(slots, config.context)
    return PackedEngine(model, config), model


def request(id_: str, prompt: list[int], count: int, end: frozenset[int] = frozenset()) -> Request:
    return Request(id_, tuple(prompt), SamplingParams(max_tokens=count, temperature=0.0, end_tokens=end))


def run_dry(engine: PackedEngine, ledger: Ledger) -> None:
    for _ in range(10_000):
        if engine.idle:
            return
        ledger.read(engine.step())
        engine.check()
    raise AssertionError("the engine does not come to rest")


STEMS = [[], list(range(40)), [*range(20), *range(60, 80)]]
prompts = st.builds(
    lambda stem, rest: [*stem, *rest],
    st.sampled_from(STEMS),  # so that prompts begin alike
    st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=30),
)
arrivals = st.lists(
    st.tuples(prompts, st.integers(0, 30), st.integers(0, 25), st.none() | st.integers(0, 40)), min_size=1, max_size=9
)


@given(arrivals, st.integers(1, 5), st.integers(1, 64), st.integers(100, 400), st.booleans())
def test_any_mix_of_arrivals_preemptions_reuse_and_cancels_gives_each_request_what_it_gets_alone(
    arrivals: list[tuple[list[int], int, int, int | None]], slots: int, step_rows: int, tokens: int, reuse: bool
) -> None:
    packed, model = engine(slots, step_rows, tokens=tokens, reuse=reuse)
    ledger = Ledger()
    for step in range(80):
        for i, (prompt, count, at, cancel_at) in enumerate(arrivals):
            if at == step:
                packed.add(request(f"{i}", prompt, count))
            if cancel_at == step:
                packed.drop(f"{i}")
        ledger.read(packed.step())
        packed.check()
        assert sum(len(slot) for slot in model.slots) <= tokens
    run_dry(packed, ledger)
    for i, (prompt, count, at, cancel_at) in enumerate(arrivals):
        end, told = ledger.ends[f"{i}"][0], ledger.tokens[f"{i}"]
        if end.finish is Finish.CANCELLED:
            assert cancel_at is not None
            assert cancel_at >= at
            assert told == solo(prompt, len(told))
        else:
            assert end.finish is Finish.LENGTH
            assert told == solo(prompt, count)
    assert reuse or all(slot == [] for slot in model.slots)


def test_an_end_token_ends_the_request_and_is_delivered() -> None:
    packed, _ = engine()
    expected = solo([5, 6, 7], 10)
    packed.add(request("a", [5, 6, 7], 10, frozenset({expected[3]})))
    ledger = Ledger()
    run_dry(packed, ledger)
    cut = expected.index(expected[3]) + 1
    assert ledger.tokens["a"] == expected[:cut]
    assert ledger.ends["a"][0].finish is Finish.STOP


def test_a_request_that_arrives_later_gets_its_first_token_before_the_earlier_one_ends() -> None:
    packed, _ = engine()
    packed.add(request("a", [1, 2, 3], 30))
    for _ in range(10):
        packed.step()
    packed.add(request("b", [4, 5], 3))
    report = packed.step()
    assert {e.id for e in report.events} == {"a", "b"}
    assert (report.decode_rows, report.prefill_rows, report.running) == (1, 2, 2)


def test_a_failed_step_ends_its_requests_with_the_error_and_the_next_request_succeeds() -> None:
    packed, model = engine(slots=1)
    packed.add(request("a", [1, 2], 5))
    packed.add(request("b", [3, 4], 5))
    ledger = Ledger()
    ledger.read(packed.step())
    model.fail_next = True
    report = packed.step()
    ledger.read(report)
    packed.check()
    assert isinstance(report.failure, StepFailed)
    assert ledger.ends["a"][0].error is report.failure
    run_dry(packed, ledger)
    assert ledger.tokens["b"] == solo([3, 4], 5)


def test_logits_without_numbers_end_that_request_alone() -> None:
    packed, model = engine()
    for name in ("a", "b"):
        packed.add(request(name, [7, ord(name)], 6))
    ledger = Ledger()
    ledger.read(packed.step())
    model.spoil = 0
    run_dry(packed, ledger)
    assert isinstance(ledger.ends["a"][0].error, RequestFailed)
    assert ledger.tokens["b"] == solo([7, ord("b")], 6)


def test_a_cancelled_request_gives_its_slot_back_within_the_step() -> None:
    packed, model = engine()
    packed.add(request("a", [1, 2, 3], 30))
    packed.step()
    packed.drop("a")
    packed.drop("a")
    packed.drop("nobody")
    report = packed.step()
    assert [e.finish for e in report.events] == [Finish.CANCELLED]
    assert (report.running, report.cached_tokens) == (0, 0)
    assert model.slots[0] == []


def test_what_can_never_run_is_refused_before_it_is_taken() -> None:
    packed, _ = engine()
    for bad in (request("a", [1] * CONTEXT, 1), request("a", [], 1)):
        try:
            packed.add(bad)
        except RequestFailed:
            continue
        raise AssertionError("it was taken")
    assert packed.idle


def test_end_all_gives_everyone_the_error_once() -> None:
    packed, _ = engine(slots=1)
    for name in ("a", "b"):
        packed.add(request(name, [1, 2], 9))
    packed.step()
    events = packed.end_all(EngineDown("gone"))
    assert sorted(e.id for e in events) == ["a", "b"]
    assert all(isinstance(e.error, EngineDown) for e in events)
    assert packed.idle


def test_the_summary_of_a_request_has_its_moments_in_order_and_its_counts() -> None:
    packed, _ = engine()
    packed.add(request("a", [1, 2, 3], 3))
    ledger = Ledger()
    run_dry(packed, ledger)
    summary = ledger.ends["a"][0].summary
    assert summary is not None
    assert summary.arrived <= summary.started <= summary.first_token <= summary.ended
    assert (summary.prompt_tokens, summary.new_tokens) == (3, 3)


def test_who_makes_way_is_the_youngest_and_the_oldest_never_waits() -> None:
    packed, _ = engine(slots=3, step_rows=64, tokens=CONTEXT)
    for name in "abc":
        packed.add(request(name, [ord(name)] * 30, 80))
    ledger, speakers, preempted = Ledger(), list[set[str]](), 0
    while "a" not in ledger.ends:
        report = packed.step()
        packed.check()
        ledger.read(report)
        speakers.append({event.id for event in report.events})
        preempted += report.preempted
    assert all("a" in told for told in speakers)
    assert preempted == 2
    run_dry(packed, ledger)
    assert all(ledger.tokens[name] == solo([ord(name)] * 30, 80) for name in "abc")


def test_a_request_reserves_no_more_than_it_needs_at_present() -> None:
    packed, _ = engine(slots=4, step_rows=64, tokens=CONTEXT)
    for name in "abcd":
        packed.add(request(name, [ord(name)] * 10, 100))
    assert packed.step().running == 4


def test_what_can_never_fit_the_budget_is_refused_before_it_is_taken() -> None:
    packed, _ = engine(tokens=50)
    with pytest.raises(RequestFailed, match="51 tokens do not fit the 50"):
        packed.add(request("a", [1] * 31, 20))
    packed.add(request("b", [1] * 30, 20))
    run_dry(packed, Ledger())


def test_the_next_turn_of_a_chat_takes_over_the_slot_of_the_last_one() -> None:
    packed, model = engine(slots=2, step_rows=64, reuse=True)
    ledger, prompt = Ledger(), list(range(30))
    cached = []
    for turn in range(3):
        packed.add(request(f"{turn}", prompt, 5))
        run_dry(packed, ledger)
        summary = ledger.ends[f"{turn}"][0].summary
        assert summary is not None
        cached.append(summary.cached_tokens)
        assert ledger.tokens[f"{turn}"] == solo(prompt, 5)
        prompt = [*prompt, *ledger.tokens[f"{turn}"], 7, 8]
    assert cached == [0, 34, 41]
    assert {target for _, target, _ in model.copied} == {0}


def test_a_prompt_that_begins_like_a_running_one_is_given_a_copy() -> None:
    packed, model = engine(slots=3, step_rows=64, reuse=True)
    packed.add(request("a", list(range(40)), 20))
    packed.step()
    packed.add(request("b", [*range(32), 90, 91], 20))
    assert packed.step().prefill_rows == 2
    assert model.copied == [(0, 1, 32)]


def test_the_same_prompt_again_computes_its_last_token_alone() -> None:
    packed, _ = engine(step_rows=64, reuse=True)
    ledger = Ledger()
    for name in "ab":
        packed.add(request(name, list(range(20)), 3))
        report = packed.step()
        ledger.read(report)
        run_dry(packed, ledger)
    assert (report.decode_rows, report.prefill_rows) == (0, 1)
    assert ledger.tokens["a"] == ledger.tokens["b"]


def test_beside_running_streams_a_step_takes_as_many_rows_of_prompts_as_its_target_allows() -> None:
    config = EngineConfig(slots=2, context=CONTEXT, step_rows=100, threads=1, target_itl=1e-9)
    packed = PackedEngine(FakeModel(2, config.context), config)
    packed.add(request("a", [1] * 50, 60))
    assert packed.step().prefill_rows == 50  # nobody waits for a token
    packed.add(request("b", [2] * 90, 9))
    assert packed.step().prefill_rows == LEAST_PREFILL  # whatever the target
    ledger = Ledger()
    run_dry(packed, ledger)
    assert ledger.tokens["b"] == solo([2] * 90, 9)


def test_requests_of_different_salts_share_nothing() -> None:
    packed, _ = engine(step_rows=64, reuse=True)
    rows = []
    for name, salt in (("a", "x"), ("b", "y"), ("c", "x")):
        packed.add(Request(name, tuple(range(20)), SamplingParams(max_tokens=1, temperature=0.0), salt=salt))
        rows.append(packed.step().prefill_rows)
    assert rows == [20, 20, 1]


def test_prefixes_make_way_for_what_is_computed_now_the_least_recently_used_first() -> None:
    packed, model = engine(slots=4, step_rows=128, tokens=130, reuse=True)
    for name in "abc":
        packed.add(request(name, [ord(name)] * 40, 1))
        run_dry(packed, Ledger())
    packed.add(request("a again", [*[ord("a")] * 40, 5], 1))
    run_dry(packed, Ledger())
    packed.add(request("d", [ord("d")] * 30, 1))
    report = packed.step()
    packed.check()
    assert [len(slot) for slot in model.slots] == [41, 0, 40, 30]
    assert report.reusable_tokens == 111
