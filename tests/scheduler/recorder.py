"""A model that keeps what its requests' tokens were drawn from."""

import numpy as np
from numpy.typing import NDArray

from scheduler.batch import Batch, Output
from scheduler.model.session import PackedSession


class Recorder:
    """The real session; keeps the logits that each request's tokens were drawn from."""

    def __init__(self, session: PackedSession) -> None:
        self.session = session
        self.seen: dict[str, list[NDArray[np.float32]]] = {}

    def run(self, batch: Batch, temperatures: NDArray[np.float32]) -> Output:
        output = self.session.run(batch, temperatures)
        for id_, row in zip(batch.sampled, output.logits, strict=False):
            self.seen.setdefault(id_, []).append(row.copy())
        return output

    def release(self, slot: int, keep: int = 0) -> None:
        self.session.release(slot, keep)

    def copy(self, source: int, target: int, tokens: int) -> None:
        self.session.copy(source, target, tokens)

    def close(self) -> None:
        pass
