"""A real scheduler thread whose model stands still until it is told to go on."""

import math
import threading
from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler.batch import Batch, Output
from scheduler.config import EngineConfig
from scheduler.engine import PackedEngine
from scheduler.worker import Worker
from server.bridge import Bridge, Watcher
from server.queue import Limits
from tests.scheduler.fake_model import FakeModel

CONFIG = EngineConfig(slots=2, context=64, step_rows=16, threads=1)


class HeldModel(FakeModel):
    """Waits in each run until `go_on` is set."""

    def __init__(self) -> None:
        super().__init__(CONFIG.slots, CONFIG.context)
        self.entered, self.go_on = threading.Event(), threading.Event()

    def run(self, batch: Batch, temperatures: NDArray[np.float32]) -> Output:
        self.entered.set()
        assert self.go_on.wait(30)
        return super().run(batch, temperatures)


def bridge_over(model: HeldModel, stall: float, watchers: Sequence[Watcher] = ()) -> Bridge:
    """A bridge that counts as stalled after so many seconds."""
    limits = Limits(slots=2, queue=2, seconds=math.inf, stall=stall)
    return Bridge(lambda sink: Worker(lambda: PackedEngine(model, CONFIG), sink), limits, watchers)
