"""When requests are sent. Knows no HTTP.

Closed loop: so many at once, each followed by the next. Open loop: by a clock of its own, whatever the server does;
there a latency counts from the moment a request was due, so a generator that fell behind would show.
"""

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from time import perf_counter, process_time

import numpy as np

from server.load.connection import Sample
from server.load.prompts import Ask

Send = Callable[[Ask, float], Awaitable[Sample]]


@dataclass(frozen=True, slots=True)
class Level:
    """How much load: `concurrency` requests at once, or `rate` a second; exactly one is set."""

    concurrency: int | None = None
    rate: float | None = None

    def __str__(self) -> str:
        return f"{self.concurrency} at once" if self.concurrency else f"{self.rate:g} a second"


@dataclass(frozen=True, slots=True)
class Extent:
    """When a run is over: after so many requests or seconds, whichever comes first.

    Attributes:
        warmup: requests that are sent before, one after the other and not counted.
        burstiness: shape of the gaps' gamma distribution in the open loop; 1 is Poisson, less is burstier.
    """

    requests: int | None
    seconds: float | None
    warmup: int
    burstiness: float = 1.0
    seed: int = 0


@dataclass(slots=True)
class Run:
    """One level's samples while they come, and afterwards.

    Attributes:
        samples: of requests that have ended.
        under_way: requests that have not.
        busy: the generator's own share of a core, 0 to 1.
    """

    level: Level
    begun: float = 0.0
    ended: float = 0.0
    busy: float = 0.0
    under_way: int = 0
    samples: list[Sample] = field(default_factory=list)


async def drive(run: Run, asks: Iterator[Ask], send: Send, extent: Extent) -> None:
    """Put the run's load on a server. A cancelled run keeps the samples it has."""
    for _ in range(extent.warmup):
        await send(next(asks), perf_counter())
    run.begun, cpu = perf_counter(), process_time()
    try:
        if run.level.concurrency is not None:
            await _closed(run, asks, send, extent)
        else:
            await _open(run, asks, send, extent)
    finally:
        run.ended = perf_counter()
        run.busy = (process_time() - cpu) / max(run.ended - run.begun, 1e-9)


async def _closed(run: Run, asks: Iterator[Ask], send: Send, extent: Extent) -> None:
    left = _Countdown(run, extent)

    async def one_after_the_other() -> None:
        while left.take():
            await _sent(run, next(asks), send, perf_counter())

    async with asyncio.TaskGroup() as group:
        for _ in range(run.level.concurrency or 1):
            group.create_task(one_after_the_other())


async def _open(run: Run, asks: Iterator[Ask], send: Send, extent: Extent) -> None:
    left = _Countdown(run, extent)
    random = np.random.Generator(np.random.PCG64(extent.seed))
    due = run.begun
    scale = 1 / ((run.level.rate or 1.0) * extent.burstiness)
    async with asyncio.TaskGroup() as group:
        while left.take():
            due += random.gamma(extent.burstiness, scale)
            await asyncio.sleep(max(0.0, due - perf_counter()))
            group.create_task(_sent(run, next(asks), send, due))


async def _sent(run: Run, ask: Ask, send: Send, due: float) -> None:
    run.under_way += 1
    try:
        run.samples.append(await send(ask, due))
    finally:
        run.under_way -= 1


class _Countdown:
    """Says whether one more request is to be sent."""

    def __init__(self, run: Run, extent: Extent) -> None:
        self._left = extent.requests
        self._end = None if extent.seconds is None else run.begun + extent.seconds

    def take(self) -> bool:
        """Take one, if there is one left."""
        if self._end is not None and perf_counter() >= self._end:
            return False
        if self._left is None:
            return True
        self._left -= 1
        return self._left >= 0
