import threading
from queue import Queue

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from scheduler.batch import Batch, Output
from scheduler.config import EngineConfig
from scheduler.engine import PackedEngine, StepReport
from scheduler.errors import EngineDown, EngineError, RequestFailed, StepFailed
from scheduler.params import SamplingParams
from scheduler.request import Event, Finish, Request
from scheduler.worker import MOST_FAILURES, State, Worker
from tests.scheduler.fake_model import FakeModel, solo

CONFIG = EngineConfig(slots=3, context=64, step_rows=16, threads=1, prefix_reuse=False)


class Outside:
    """Collects what the sink gets; `wait` blocks until the named requests have ended."""

    def __init__(self) -> None:
        self.events: dict[str, list[Event]] = {}
        self._changed = threading.Condition()

    def sink(self, report: StepReport) -> None:
        with self._changed:
            for event in report.events:
                self.events.setdefault(event.id, []).append(event)
            self._changed.notify_all()

    def wait(self, *ids: str) -> None:
        with self._changed:
            assert self._changed.wait_for(lambda: all(self.ended(i) for i in ids), timeout=30)

    def ended(self, id_: str) -> bool:
        return any(e.finish for e in self.events.get(id_, []))

    def tokens(self, id_: str) -> list[int]:
        return [t for e in self.events[id_] for t in e.tokens]

    def end(self, id_: str) -> Event:
        (end,) = [e for e in self.events[id_] if e.finish]
        assert end is self.events[id_][-1]
        return end


class CrashingModel(FakeModel):
    """A model with a bug: its run raises something that nobody planned for."""

    def run(self, batch: Batch, temperatures: NDArray[np.float32]) -> Output:
        raise ZeroDivisionError(f"a bug at {len(batch.input_ids)} rows and {len(temperatures)} logits")


def started(model: FakeModel | None = None) -> tuple[Worker, Outside, FakeModel]:
    used = model or FakeModel(CONFIG.slots, CONFIG.context)
    outside = Outside()
    worker = Worker(lambda: PackedEngine(used, CONFIG), outside.sink)
    worker.start()
    return worker, outside, used


def request(id_: str, prompt: tuple[int, ...] = (1, 2, 3), count: int = 8) -> Request:
    return Request(id_, prompt, SamplingParams(max_tokens=count, temperature=0.0))


def test_requests_submitted_while_the_engine_opens_are_answered() -> None:
    gate = threading.Event()
    model, outside = FakeModel(CONFIG.slots, CONFIG.context), Outside()

    def open_engine() -> PackedEngine:
        gate.wait(30)
        return PackedEngine(model, CONFIG)

    worker = Worker(open_engine, outside.sink)
    worker.start()
    assert worker.state is State.LOADING
    worker.submit(request("a"))
    gate.set()
    outside.wait("a")
    assert outside.tokens("a") == solo([1, 2, 3], 8)
    worker.stop()


def test_a_request_that_cannot_run_ends_with_its_error_and_harms_nobody() -> None:
    worker, outside, _ = started()
    worker.submit(request("a"))
    worker.submit(request("b", count=1000))
    outside.wait("a", "b")
    assert isinstance(outside.end("b").error, RequestFailed)
    assert outside.tokens("a") == solo([1, 2, 3], 8)
    worker.stop()


def test_a_stop_ends_everyone_and_closes_the_model() -> None:
    worker, outside, model = started()
    for name in "abcdef":
        worker.submit(request(name, count=60))
    worker.stop()
    for name in "abcdef":
        assert outside.end(name).finish in {Finish.LENGTH, Finish.FAILED}
    assert worker.state is State.DOWN
    assert worker.failure is None
    assert model.closed
    with pytest.raises(EngineDown):
        worker.submit(request("late"))


@pytest.mark.parametrize("broken", ["open", "run"])
def test_a_crash_ends_everyone_and_says_why(broken: str) -> None:
    outside = Outside()

    def open_engine() -> PackedEngine:
        if broken == "open":
            raise ZeroDivisionError("a bug")
        return PackedEngine(CrashingModel(CONFIG.slots, CONFIG.context), CONFIG)

    worker = Worker(open_engine, outside.sink)
    for name in "abc":
        worker.submit(request(name))
    worker.start()
    worker.join()
    for name in "abc":
        assert isinstance(outside.end(name).error, EngineDown)
    assert isinstance(worker.failure, ZeroDivisionError)
    with pytest.raises(EngineDown, match="a bug"):
        worker.submit(request("late"))


def test_a_failing_step_ends_its_requests_and_the_thread_goes_on() -> None:
    worker, outside, model = started()
    model.fail_next = True
    worker.submit(request("a"))
    outside.wait("a")
    assert isinstance(outside.end("a").error, StepFailed)
    worker.submit(request("b"))
    outside.wait("b")
    assert outside.tokens("b") == solo([1, 2, 3], 8)
    worker.stop()


class FailingModel(FakeModel):
    """A model none of whose runs comes to its end."""

    def run(self, batch: Batch, temperatures: NDArray[np.float32]) -> Output:
        raise StepFailed(f"no memory for {len(batch.input_ids)} rows and {len(temperatures)} logits")


def test_one_failing_step_after_the_other_brings_the_engine_down_and_says_why() -> None:
    worker, outside, _ = started(FailingModel(CONFIG.slots, CONFIG.context))
    accepted = []
    for number in range(100):
        try:
            worker.submit(request(f"{number}"))
        except EngineDown:
            break
        accepted.append(f"{number}")
        outside.wait(f"{number}")
    worker.join()
    assert MOST_FAILURES <= len(accepted) < 100
    assert all(isinstance(outside.end(id_).error, EngineError) for id_ in accepted)
    assert worker.state is State.DOWN
    assert f"{MOST_FAILURES} steps in a row failed" in str(worker.failure)


@given(st.lists(st.tuples(st.integers(0, 5), st.sampled_from(["submit", "cancel"])), max_size=30))
def test_whatever_is_submitted_ends_exactly_once(actions: list[tuple[int, str]]) -> None:
    worker, outside, model = started()
    accepted = set()
    for number, (name, action) in enumerate(actions):
        if action == "submit" and f"{name}" not in accepted:
            accepted.add(f"{name}")
            worker.submit(request(f"{name}", prompt=(name + 1, number), count=10))
        else:
            worker.cancel(f"{name}")
    outside.wait(*accepted)
    worker.stop()
    for id_ in accepted:
        assert outside.end(id_).finish in {Finish.LENGTH, Finish.CANCELLED}
    assert all(slot == [] for slot in model.slots)


def test_submits_from_many_threads_race_the_stop_without_losing_anyone() -> None:
    worker, outside, _ = started()
    accepted: Queue[str] = Queue()

    def submitter(name: str) -> None:
        for i in range(50):
            try:
                worker.submit(request(f"{name}{i}", count=3))
            except EngineError:
                return
            accepted.put(f"{name}{i}")

    threads = [threading.Thread(target=submitter, args=(name,)) for name in "abcd"]
    for thread in threads:
        thread.start()
    worker.stop()
    for thread in threads:
        thread.join()
    ids = [accepted.get() for _ in range(accepted.qsize())]
    for id_ in ids:
        assert outside.end(id_).finish is not None


def test_the_sink_is_called_in_one_thread_only() -> None:
    threads: set[int] = set()
    outside = Outside()

    def sink(report: StepReport) -> None:
        threads.add(threading.get_ident())
        outside.sink(report)

    worker = Worker(lambda: PackedEngine(FakeModel(CONFIG.slots, CONFIG.context), CONFIG), sink)
    worker.start()
    worker.submit(request("a"))
    outside.wait("a")
    worker.stop()
    assert len(threads) == 1
