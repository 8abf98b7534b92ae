from dataclasses import dataclass, field

from hypothesis import given
from hypothesis import strategies as st

from scheduler.config import EngineConfig
from scheduler.engine import PackedEngine, StepReport
from scheduler.errors import EngineDown, RequestFailed, StepFailed
from scheduler.params import SamplingParams
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


def engine(slots: int = 4, step_rows: int = 16) -> tuple[PackedEngine, FakeModel]:
    config = EngineConfig(slots=slots, context=CONTEXT, step_rows=step_rows, threads=1)
    model = FakeModel(slots, config.capacity)
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


prompts = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=70)
arrivals = st.lists(
    st.tuples(prompts, st.integers(0, 30), st.integers(0, 25), st.none() | st.integers(0, 40)), min_size=1, max_size=9
)


@given(arrivals, st.integers(1, 5), st.integers(1, 64))
def test_any_arrivals_budget_and_cancels_give_each_request_what_it_gets_alone(
    arrivals: list[tuple[list[int], int, int, int | None]], slots: int, step_rows: int
) -> None:
    packed, model = engine(slots, step_rows)
    ledger = Ledger()
    for step in range(80):
        for i, (prompt, count, at, cancel_at) in enumerate(arrivals):
            if at == step:
                packed.add(request(f"{i}", prompt, count))
            if cancel_at == step:
                packed.drop(f"{i}")
        ledger.read(packed.step())
        packed.check()
    run_dry(packed, ledger)
    for i, (prompt, count, at, cancel_at) in enumerate(arrivals):
        end, tokens = ledger.ends[f"{i}"][0], ledger.tokens[f"{i}"]
        if end.finish is Finish.CANCELLED:
            assert cancel_at is not None
            assert cancel_at >= at
            assert tokens == solo(prompt, len(tokens))
        else:
            assert end.finish is Finish.LENGTH
            assert tokens == solo(prompt, count)
    assert all(slot == [] for slot in model.slots)


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
