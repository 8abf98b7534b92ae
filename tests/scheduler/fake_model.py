"""A model that is arithmetic: the next token follows from the slot's content. It raises on every abuse of a slot."""

import numpy as np
from numpy.typing import NDArray

from scheduler.batch import Batch, Output
from scheduler.errors import StepFailed
from tests.scheduler.outputs import output_of

VOCABULARY = 97


def next_token(content: list[int]) -> int:
    """The token that this model puts behind a text: every token and its place count."""
    return sum((place + 1) * token for place, token in enumerate(content)) * 31 % VOCABULARY


def solo(prompt: list[int], count: int) -> list[int]:
    """The oracle: what a prompt gets alone, greedily."""
    content = list(prompt)
    for _ in range(count):
        content.append(next_token(content))
    return content[len(prompt) :]


class FakeModel:
    """Follows the packed arrays as the graph would, and the slots as the KV cache would."""

    def __init__(self, slots: int, context: int) -> None:
        self.slots: list[list[int]] = [[] for _ in range(slots)]
        self.context = context
        self.closed = False
        self.fail_next = False
        self.spoil: int | None = None  # a sampled row whose logits become NaN
        self.copied: list[tuple[int, int, int]] = []  # source, target, tokens

    def run(self, batch: Batch, temperatures: NDArray[np.float32]) -> Output:
        assert not self.closed
        if self.fail_next:
            self.fail_next = False
            raise StepFailed("the fake model was told to fail")
        following = self._append(batch)
        assert temperatures.shape == batch.logit_rows.shape
        logits = np.zeros((len(batch.logit_rows), VOCABULARY), np.float32)
        logits[np.arange(len(logits)), following[batch.logit_rows]] = 5.0
        if self.spoil is not None:
            logits[self.spoil] = np.nan
            self.spoil = None
        return output_of(logits, temperatures)

    def copy(self, source: int, target: int, tokens: int) -> None:
        assert source == target or self.slots[target] == [], f"slot {target} is not free"
        assert 0 < tokens <= len(self.slots[source]), f"slot {source} holds no {tokens} tokens"
        self.slots[target][:] = self.slots[source][:tokens]
        self.copied.append((source, target, tokens))

    def release(self, slot: int, keep: int = 0) -> None:
        assert keep >= 0
        self.slots[slot].clear()

    def close(self) -> None:
        self.closed = True

    def _append(self, batch: Batch) -> NDArray[np.int64]:
        """The token that follows each row, which has to lie behind all that its slot holds."""
        following = []
        rows = zip(batch.input_ids.tolist(), batch.slots.tolist(), batch.positions.tolist(), strict=True)
        for token, slot, position in rows:
            content = self.slots[slot]
            assert position == len(content), f"position {position} was asked of a slot that holds {len(content)} tokens"
            assert position < self.context, "the context is full"
            content.append(token)
            following.append(next_token(content))
        return np.array(following)
