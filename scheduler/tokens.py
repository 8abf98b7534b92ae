"""Token ids in arrays: a list that grows, and what two share. Knows nothing of requests and slots."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

TokenIds = NDArray[np.int32]


def common(a: TokenIds, b: TokenIds) -> int:
    """How many tokens two lists share from the first on."""
    length = min(len(a), len(b))
    differs = a[:length] != b[:length]
    return int(differs.argmax()) if differs.any() else length


class TokenList:
    """A prompt and what is generated behind it."""

    def __init__(self, prompt: Sequence[int]) -> None:
        self._room = np.array(prompt, np.int32)
        self._count = len(self._room)

    @property
    def ids(self) -> TokenIds:
        """All so far; what was taken earlier stays as it was."""
        return self._room[: self._count]

    def append(self, token: int) -> None:
        """Take one more."""
        if self._count == len(self._room):
            grown = np.empty(max(16, 2 * self._count), np.int32)
            grown[: self._count] = self._room
            self._room = grown
        self._room[self._count] = token
        self._count += 1
