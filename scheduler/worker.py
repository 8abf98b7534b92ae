"""The scheduler thread: it owns the engine from birth to death. Knows neither asyncio nor onnxruntime.

The guarantee: `submit` either raises, or the request gets exactly one terminal event through the sink, whatever
happens: a crash, a cancel, a stop. A lock orders the one race there is, between a submit and the thread's end.
"""

import threading
from collections.abc import Callable
from enum import Enum
from queue import SimpleQueue

from scheduler.engine import Engine, StepReport
from scheduler.errors import EngineDown, EngineError, RequestFailed
from scheduler.request import Event, Finish, Request


class State(Enum):
    """What the scheduler thread is at."""

    LOADING = "loading"
    READY = "ready"
    DOWN = "down"


MOST_FAILURES = 5
"""Steps in a row that may fail, each ending its requests, before the engine is given up."""


class Stop:
    """The inbox message after which the thread ends everyone and itself."""


Message = Request | str | Stop
"""A request to add, the id of one to drop, or the stop."""


class Worker:
    """Runs an engine in a thread of its own and hands every report to a sink, in that thread.

    Args:
        open_engine: makes the engine; called in the thread.
        sink: takes each step's report, an empty one when the engine has opened, and one with the last words.
    """

    def __init__(self, open_engine: Callable[[], Engine], sink: Callable[[StepReport], None]) -> None:
        self._open = open_engine
        self._sink = sink
        self._inbox: SimpleQueue[Message] = SimpleQueue()
        self._lock = threading.Lock()
        self._state = State.LOADING
        self._failure: Exception | None = None
        self._failed_steps = 0  # in a row
        self._thread = threading.Thread(target=self._run, name="paceline-scheduler", daemon=True)

    @property
    def state(self) -> State:
        """What the thread is at."""
        return self._state

    @property
    def failure(self) -> Exception | None:
        """What brought the thread down; None while it lives, and after a stop."""
        return self._failure

    @property
    def alive(self) -> bool:
        """Whether the thread runs, be it that it only ends."""
        return self._thread.is_alive()

    def start(self) -> None:
        """Begin; requests may be submitted from now on and wait for the engine to open."""
        self._thread.start()

    def submit(self, request: Request) -> None:
        """Hand over a request; raises EngineDown where the thread has ended, and takes it otherwise."""
        with self._lock:
            if self._state is State.DOWN:
                raise EngineDown(f"the scheduler is down: {self._failure or 'it was stopped'}")
            self._inbox.put(request)

    def cancel(self, id_: str) -> None:
        """Ask for a request's end; one that has ended or was never submitted is ignored."""
        self._inbox.put(id_)

    def stop(self) -> None:
        """End everyone still here with EngineDown, then the thread; returns when it is gone."""
        self._inbox.put(Stop())
        self._thread.join()

    def join(self) -> None:
        """Wait for the thread's end."""
        self._thread.join()

    def _run(self) -> None:
        engine: Engine | None = None
        try:
            engine = self._open()
            self._state = State.READY
            self._sink(StepReport())  # tells whoever watches that it is ready
            while self._obey(engine):
                report = engine.step()
                self._sink(report)
                self._judge(report)
        except Exception as error:  # whatever it was, everyone is told below
            self._failure = error
        finally:
            self._end_everyone(engine)

    def _judge(self, report: StepReport) -> None:
        """Give the engine up where one step after the other fails."""
        if report.failure is None:
            self._failed_steps *= not report.slices
            return
        self._failed_steps += 1
        if self._failed_steps >= MOST_FAILURES:
            raise EngineDown(f"{self._failed_steps} steps in a row failed, the last because {report.failure}")

    def _obey(self, engine: Engine) -> bool:
        """Follow the inbox, sleeping on it while there is nothing to compute; False after a stop."""
        while engine.idle or not self._inbox.empty():
            message = self._inbox.get()
            if isinstance(message, Stop):
                return False
            if isinstance(message, str):
                engine.drop(message)
            else:
                self._add(engine, message)
        return True

    def _add(self, engine: Engine, request: Request) -> None:
        try:
            engine.add(request)
        except RequestFailed as error:
            self._sink(StepReport((request.end(Finish.FAILED, error),)))

    def _end_everyone(self, engine: Engine | None) -> None:
        error = EngineDown(f"the scheduler went down: {self._failure or 'it was stopped'}")
        with self._lock:
            self._state = State.DOWN
        events = [*self._last_words(engine, error), *self._unread(error)]
        self._sink(StepReport(tuple(events)))

    def _last_words(self, engine: Engine | None, error: EngineError) -> list[Event]:
        if engine is None:
            return []
        events = list(engine.end_all(error))
        engine.close()
        return events

    def _unread(self, error: EngineError) -> list[Event]:
        """Terminal events for the requests that nobody had taken from the inbox."""
        events = []
        while not self._inbox.empty():
            message = self._inbox.get()
            if isinstance(message, Request):
                events.append(message.end(Finish.FAILED, error))
        return events
