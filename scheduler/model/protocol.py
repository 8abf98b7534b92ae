"""What the engine asks of a model. Knows nothing of requests and plans."""

from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from scheduler.batch import Batch, Output


class Model(Protocol):
    """A model with its KV slots; `scheduler.model.session.PackedSession` is the real one."""

    def run(self, batch: Batch, temperatures: NDArray[np.float32]) -> Output:
        """What the model says of the batch's logit rows, valid until the next run; raises StepFailed.

        `temperatures` [R] is what each row's mass is asked for at; 0 asks for none.
        """

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Give the target slot the first `tokens` tokens of the source slot.

        The target holds nothing, or is the source itself, which then keeps these and forgets the rest.
        """

    def release(self, slot: int, keep: int = 0) -> None:
        """Forget the slot's tokens and give their memory back, but for what `keep` tokens take."""

    def close(self) -> None:
        """Give everything back."""
