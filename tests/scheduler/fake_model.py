"""A model that is arithmetic: the next token follows from the slot's content. It raises on every abuse of a slot."""

import numpy as np
from numpy.typing import NDArray

from scheduler.batch import ABSENT_ROWS, Batch, Group
from scheduler.errors import StepFailed

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

    def __init__(self, slots: int, capacity: int) -> None:
        self.slots: list[list[int]] = [[] for _ in range(slots)]
        self.capacity = capacity
        self.closed = False
        self.fail_next = False
        self.spoil: int | None = None  # a sampled row whose logits become NaN
        self.copied: list[tuple[int, int, int]] = []  # source, target, tokens

    def run(self, batch: Batch) -> NDArray[np.float32]:
        assert not self.closed
        if self.fail_next:
            self.fail_next = False
            raise StepFailed("the fake model was told to fail")
        outputs = [self._attend(batch.input_ids, g) for g in (batch.decode, batch.prefill)]
        self._no_slot_is_shared(batch)
        hidden = np.concatenate(outputs)[batch.unpad]  # the token that follows each packed row
        assert (hidden >= 0).all(), "a packed row was gathered from padding"
        logits = np.zeros((len(batch.logit_rows), VOCABULARY), np.float32)
        logits[np.arange(len(logits)), hidden[batch.logit_rows]] = 5.0
        if self.spoil is not None:
            logits[self.spoil] = np.nan
            self.spoil = None
        return logits

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

    def _attend(self, ids: NDArray[np.int64], group: Group | None) -> NDArray[np.int64]:
        if group is None:
            return np.full(ABSENT_ROWS, -1)
        padded = ids[group.rows].reshape(group.width, group.longest)
        out = np.full(padded.shape, -1)
        assert group.total >= group.longest
        for row in range(group.width):
            content, count = self.slots[group.first + row], int(group.query_seqlens[row])
            if count == 0:
                continue
            past = int(group.seqlens_k[row]) + 1 - count
            assert past == len(content), f"position {past} was asked of a slot that holds {len(content)} tokens"
            assert past + group.longest <= self.capacity, "the padded chunk does not fit the cache"
            assert group.total >= past + count
            assert count != 1 or group.longest == 1, "a single row in the prefill group"
            for column in range(count):
                content.append(int(padded[row, column]))
                out[row, column] = next_token(content)
        return out.ravel()

    @staticmethod
    def _no_slot_is_shared(batch: Batch) -> None:
        used = [
            group.first + int(row)
            for group in (batch.decode, batch.prefill)
            if group is not None
            for row in np.flatnonzero(group.query_seqlens)
        ]
        assert len(used) == len(set(used)), f"slots {used} overlap"
