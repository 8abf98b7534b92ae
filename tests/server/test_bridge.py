"""The bridge over a real scheduler thread whose model stands still until it is told to go on."""

import asyncio
import math
import threading

import numpy as np
import pytest
from numpy.typing import NDArray

from scheduler.batch import Batch
from scheduler.config import EngineConfig
from scheduler.engine import PackedEngine
from scheduler.errors import EngineDown
from scheduler.params import SamplingParams
from scheduler.request import Request
from scheduler.worker import Worker
from server.bridge import Bridge
from server.queue import Limits
from tests.scheduler.fake_model import FakeModel, solo

CONFIG = EngineConfig(slots=2, context=64, step_rows=16, threads=1)


class HeldModel(FakeModel):
    """Waits in each run until `go_on` is set."""

    def __init__(self) -> None:
        super().__init__(CONFIG.slots, CONFIG.capacity)
        self.entered, self.go_on = threading.Event(), threading.Event()

    def run(self, batch: Batch) -> NDArray[np.float32]:
        self.entered.set()
        assert self.go_on.wait(30)
        return super().run(batch)


class Rejections:
    """Remembers why requests were turned away."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def submitted(self, request: Request) -> None:
        """Not of interest."""

    def step(self, report: object) -> None:
        """Not of interest."""

    def rejected(self, reason: str) -> None:
        self.reasons.append(reason)


def test_a_scheduler_that_stands_still_is_stalled_takes_nobody_and_recovers() -> None:
    model, watcher = HeldModel(), Rejections()
    limits = Limits(slots=2, queue=2, seconds=math.inf, stall=0.0)
    bridge = Bridge(lambda sink: Worker(lambda: PackedEngine(model, CONFIG), sink), limits, [watcher])

    def request(id_: str) -> Request:
        return Request(id_, (1, 2, 3), SamplingParams(max_tokens=5, temperature=0.0))

    async def scenario() -> list[int]:
        bridge.start()
        await bridge.opened()
        assert bridge.state == "ready"
        stream = bridge.submit([request("held")])
        await asyncio.to_thread(model.entered.wait, 30)
        assert bridge.state == "stalled"
        with pytest.raises(EngineDown, match="no progress"):
            bridge.submit([request("late")])
        model.go_on.set()
        tokens: list[int] = []
        finish = None
        while finish is None:
            for update in await stream.next():
                tokens += update.tokens
                finish = update.finish
        assert bridge.state == "ready"
        await bridge.drain(30)
        return tokens

    assert asyncio.run(scenario()) == solo([1, 2, 3], 5)
    assert watcher.reasons == ["stalled"]
