"""Between asyncio and the scheduler thread: the only file that knows both worlds. Knows neither JSON nor text.

The thread's sink wakes the event loop once a step; the loop hands each event to the stream of its reply.
"""

import asyncio
import contextlib
from collections.abc import Callable, Sequence
from dataclasses import replace
from time import perf_counter
from typing import Protocol

from scheduler.engine import StepReport
from scheduler.errors import EngineDown
from scheduler.request import Event, Finish, Request
from scheduler.worker import State, Worker
from server.errors import QueueFull
from server.queue import Limits, Turnover, stalled
from server.stream import Stream

_WHY_NOT = {
    "loading": "the model is loading",
    "draining": "the server is shutting down",
    "stalled": "the scheduler makes no progress",
    "down": "the scheduler is down",
}


class Watcher(Protocol):
    """Who counts what passes the bridge; called on the event loop."""

    def submitted(self, request: Request) -> None:
        """Take note of a request that was handed to the scheduler, in the context of whoever did."""

    def step(self, report: StepReport) -> None:
        """Take a step's report."""

    def rejected(self, reason: str) -> None:
        """Take note that a request was turned away."""


class Bridge:
    """Admits requests, passes them to the worker, and hands out what comes back.

    Args:
        make_worker: makes the worker around the sink that it is given.
        limits: how much is taken.
        watchers: told of every request, report and rejection.
    """

    def __init__(
        self,
        make_worker: Callable[[Callable[[StepReport], None]], Worker],
        limits: Limits,
        watchers: Sequence[Watcher],
    ) -> None:
        self._worker = make_worker(self._sink)
        self._limits = limits
        self._watchers = tuple(watchers)
        self._meant: dict[str, Finish] = {}  # how a cancelled request ended in its reader's eyes
        self._streams: dict[str, Stream] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._quiet = asyncio.Event()
        self._quiet.set()
        self._turnover = Turnover()
        self._draining = False
        self._opened = asyncio.Event()
        self._fallen = asyncio.Event()
        self._heard = perf_counter()
        self._last = StepReport()

    @property
    def state(self) -> str:
        """`loading`, `ready`, `stalled`, `draining` or `down`."""
        worker = self._worker.state
        if worker is not State.READY:
            return str(worker.value)
        if stalled(self.in_flight, self.silence, self._last.expected_seconds, self._limits.stall):
            return "stalled"
        return "draining" if self._draining else "ready"

    @property
    def failure(self) -> Exception | None:
        """What brought the scheduler down."""
        return self._worker.failure

    @property
    def alive(self) -> bool:
        """Whether the scheduler's thread runs."""
        return self._worker.alive

    @property
    def in_flight(self) -> int:
        """Requests that have not ended."""
        return len(self._streams)

    @property
    def silence(self) -> float:
        """Seconds since the scheduler's last report."""
        return perf_counter() - self._heard

    def start(self) -> None:
        """Start the worker; called on the event loop."""
        self._loop = asyncio.get_running_loop()
        self._worker.start()

    async def opened(self) -> None:
        """Wait until the model is loaded, or has failed to: `state` says which."""
        await self._opened.wait()

    async def fallen(self) -> None:
        """Wait until the scheduler has ended, for whatever reason."""
        await self._fallen.wait()

    def load(self) -> dict[str, int | str]:
        """What is in flight now, of how much."""
        last = self._last
        return {
            "state": self.state,
            "in_flight": len(self._streams),
            "room": self._limits.room,
            "running": last.running,
            "waiting": last.waiting,
            "cached_tokens": last.cached_tokens,
            "reusable_tokens": last.reusable_tokens,
        }

    @property
    def room(self) -> int:
        """Requests that may be in flight."""
        return self._limits.room

    def submit(self, requests: Sequence[Request]) -> Stream:
        """Hand a reply's requests to the scheduler, all or none.

        Raises:
            QueueFull: there is no room for them beside the requests in flight, or they would wait too long.
            EngineDown: the model is loading, the scheduler has ended, or the server is draining.
        """
        if self.state != "ready":
            self._rejected(self.state)
            raise EngineDown(_WHY_NOT[self.state])
        self._check_queue(len(requests))
        if not self._streams:
            self._heard = perf_counter()
            self._turnover.begin(self._heard)
        stream = Stream([request.id for request in requests])
        for request in requests:
            self._worker.submit(request)  # may raise after the first: those before end by the worker's last words
            self._streams[request.id] = stream
            self._quiet.clear()
            for watcher in self._watchers:
                watcher.submitted(request)
        return stream

    def cancel(self, id_: str, finish: Finish = Finish.CANCELLED) -> None:
        """End a request that nobody reads any more; watchers see it end with `finish`. The first call counts."""
        if id_ in self._streams and id_ not in self._meant:
            self._meant[id_] = finish
            self._worker.cancel(id_)

    @property
    def draining(self) -> bool:
        """Whether no more requests are taken for good."""
        return self._draining

    def close(self) -> None:
        """Take no more requests."""
        self._draining = True

    async def drain(self, seconds: float) -> None:
        """Take no more requests and wait for those in flight, `seconds` at the most; then end the rest."""
        self.close()
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(self._quiet.wait(), seconds)
        await asyncio.to_thread(self._worker.stop)
        await self._quiet.wait()

    def _check_queue(self, count: int) -> None:
        """Raise QueueFull where so many more requests find no room, or would wait too long."""
        now, ahead = perf_counter(), len(self._streams) + count
        if ahead > self._limits.room:
            self._rejected("queue_full")
            raise QueueFull((ahead - self._limits.room) * self._turnover.seconds(now))
        wait = self._turnover.wait(ahead - self._limits.slots, now)
        if wait > self._limits.seconds:
            self._rejected("queue_time")
            raise QueueFull(wait - self._limits.seconds)

    def _sink(self, report: StepReport) -> None:
        """Called by the worker, in its thread."""
        assert self._loop is not None
        self._loop.call_soon_threadsafe(self._deliver, report)

    def _rejected(self, reason: str) -> None:
        for watcher in self._watchers:
            watcher.rejected(reason)

    def _deliver(self, report: StepReport) -> None:
        if self._meant:
            report = replace(report, events=tuple(self._as_meant(event) for event in report.events))
        for event in report.events:
            stream = self._streams.get(event.id)
            if stream is not None:
                stream.put(event)
            if event.finish is not None:
                self._streams.pop(event.id, None)
                self._turnover.ended(perf_counter())
        if not self._streams:
            self._quiet.set()
        self._heard, self._last = perf_counter(), report
        self._opened.set()
        if self._worker.state is State.DOWN:
            self._fallen.set()
        for watcher in self._watchers:
            watcher.step(report)

    def _as_meant(self, event: Event) -> Event:
        """A cancelled request may have met a stop string, or its last token while the cancel was on its way."""
        meant = self._meant.pop(event.id, None) if event.finish is not None else None
        return event if meant is None or event.finish is Finish.FAILED else replace(event, finish=meant)
