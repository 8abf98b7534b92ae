"""Every step as it happens, for whoever watches: `GET /v1/steps`. Costs nothing while nobody does.

The stream begins with an event `hello`, which says what is served in what room. Then come events without a name, some
twenty a second while there are steps and one a second while there are none:

    {"state": "ready", "memory": 1234567, "missed": 0, "steps": [
        {"at": 12.345, "seconds": 0.021, "model_seconds": 0.019, "tokens": 8, "running": 9, "waiting": 0,
         "cached_tokens": 700, "slices": [["1f2e3d4c", 3, 0, 40, false], ...], "ended": [["5b6a7988", "stop"]]}]}

`at` is in seconds of a clock that starts anywhere; `tokens` were sampled in the step; a slice is the last eight letters
of a request's id, its slot, its first row, its number of rows, and whether it decodes. `memory` is the process's own,
in bytes; `missed` counts the steps that a reader was too slow for. Never is any text or token shown.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncGenerator, Mapping
from pathlib import Path
from time import perf_counter
from typing import Any

import msgspec

from scheduler.engine import StepReport
from scheduler.request import Request
from server import sse
from server.bridge import Bridge
from server.record import FINISHES

PACE = 0.05
"""Seconds that steps are gathered for, so that fast steps do not make a message each."""

PULSE = 1.0
"""Seconds after which a message is sent without any steps."""

BEHIND = 64
"""Messages that a reader may be behind before it misses some."""

_PAGE_SIZE = os.sysconf("SC_PAGE_SIZE")
_PLACE_OF_RESIDENT = 1
_encode = msgspec.json.encode


class _Viewer:
    """What one reader has not taken yet; a batch of steps is its number and their JSON."""

    def __init__(self) -> None:
        self.missed = 0
        self._batches: deque[tuple[int, bytes]] = deque()
        self._news = asyncio.Event()

    def put(self, batch: tuple[int, bytes]) -> None:
        if len(self._batches) == BEHIND:
            self.missed += self._batches.popleft()[0]
        self._batches.append(batch)
        self._news.set()

    async def take(self) -> bytes:
        """The steps since the last look, none after a while without any."""
        try:
            async with asyncio.timeout(PULSE):
                await self._news.wait()
        except TimeoutError:
            return b""
        self._news.clear()
        steps = b",".join(json for _, json in self._batches)
        self._batches.clear()
        return steps


class Feed:
    """Watches the bridge, and shows each step to every viewer; steps are put into words once for all of them.

    Args:
        hello: what is served, in what room.
    """

    def __init__(self, hello: Mapping[str, Any]) -> None:
        self._hello = sse.event(_encode(hello), "hello")
        self._viewers: set[_Viewer] = set()
        self._gathered: list[bytes] = []

    def submitted(self, request: Request) -> None:
        """A request shows when it has a slot."""

    def rejected(self, reason: str) -> None:
        """What is turned away is in no step."""

    def step(self, report: StepReport) -> None:
        """Gather a step, if anyone watches."""
        if not self._viewers or not (report.slices or report.events):
            return
        if not self._gathered:
            asyncio.get_running_loop().call_later(PACE, self._hand_out)
        self._gathered.append(_in_words(report))

    async def watch(self, bridge: Bridge) -> AsyncGenerator[bytes, None]:
        """The events for one viewer, until it leaves or the server has nothing more to do."""
        viewer = _Viewer()
        self._viewers.add(viewer)
        try:
            yield self._hello
            yield _message(bridge.state, viewer.missed, b"")
            while not (bridge.draining and bridge.in_flight == 0):
                yield _message(bridge.state, viewer.missed, await viewer.take())
        finally:
            self._viewers.discard(viewer)

    def _hand_out(self) -> None:
        batch = len(self._gathered), b",".join(self._gathered)
        self._gathered.clear()
        for viewer in self._viewers:
            viewer.put(batch)


def resident() -> int:
    """Bytes of memory that the process holds."""
    fields = Path("/proc/self/statm").read_text(encoding="ascii").split()
    return int(fields[_PLACE_OF_RESIDENT]) * _PAGE_SIZE


def _message(state: str, missed: int, steps: bytes) -> bytes:
    head = _encode({"state": state, "memory": resident(), "missed": missed})
    return sse.event(head[:-1] + b',"steps":[' + steps + b"]}")


def _in_words(report: StepReport) -> bytes:
    return _encode(
        {
            "at": round(perf_counter(), 4),
            "seconds": round(report.step_seconds, 6),
            "model_seconds": round(report.model_seconds, 6),
            "tokens": sum(len(event.tokens) for event in report.events),
            "running": report.running,
            "waiting": report.waiting,
            "cached_tokens": report.cached_tokens,
            "slices": [(s.id[-8:], s.slot, s.start, s.count, s.decodes) for s in report.slices],
            "ended": [(e.id[-8:], FINISHES[e.finish]) for e in report.events if e.finish is not None],
        }
    )
