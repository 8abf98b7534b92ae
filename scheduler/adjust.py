"""What is changed in a request's logits before a token is chosen: bias, penalties, ends that come too early.

The order is vLLM's: logit_bias, repetition penalty, frequency and presence penalty, then end tokens are masked until
min_tokens are there. Only the ids concerned are touched. Row by row; knows nothing of requests.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler.params import SamplingParams

Logits = NDArray[np.float32]
LARGEST = float(np.finfo(np.float32).max)


class History:
    """How often each token of one request has been seen, kept so that a step costs what it touches.

    Attributes:
        generated: how many new tokens there are.
    """

    def __init__(self, params: SamplingParams, prompt: Sequence[int]) -> None:
        self.generated = 0
        self._counted = params.penalised
        self._places: dict[int, int] = {}  # token -> its place in the arrays
        self._ids, self._counts = np.zeros(0, np.int64), np.zeros(0, np.int64)
        if self._counted:
            self._ids = np.array(list(dict.fromkeys(prompt)), np.int64)
            self._counts = np.zeros(len(self._ids), np.int64)
            self._places = {token: place for place, token in enumerate(self._ids.tolist())}

    @property
    def ids(self) -> NDArray[np.int64]:
        """The distinct tokens of the prompt and of what was generated."""
        return self._ids[: len(self._places)]

    @property
    def counts(self) -> NDArray[np.int64]:
        """How often each of `ids` was generated."""
        return self._counts[: len(self._places)]

    def add(self, token: int) -> None:
        """Take note of a new token."""
        self.generated += 1
        if not self._counted:
            return
        place = self._places.setdefault(token, len(self._places))
        if place == len(self._ids):
            room = np.zeros(max(16, place), np.int64)
            self._ids, self._counts = np.concatenate([self._ids, room]), np.concatenate([self._counts, room])
        self._ids[place] = token
        self._counts[place] += 1


def untouched(p: SamplingParams, history: History) -> bool:
    """Whether the logits are taken as they are."""
    return not (p.logit_bias or p.penalised or history.generated < p.min_tokens)


def adjusted(row: Logits, p: SamplingParams, history: History) -> Logits:
    """A copy of the logits [vocabulary] with everything applied."""
    row = row.copy()
    if p.logit_bias:
        ids, biases = zip(*p.logit_bias, strict=True)
        row[list(ids)] += np.array(biases, np.float32)
    if p.penalised:
        _penalise(row, p, history)
    if history.generated < p.min_tokens and p.end_tokens:
        row[list(p.end_tokens)] = -np.inf
    return row


def _penalise(row: Logits, p: SamplingParams, history: History) -> None:
    ids, counts = history.ids, history.counts
    values = row[ids].astype(np.float64)
    with np.errstate(over="ignore"):
        values = np.where(values > 0, values / p.repetition_penalty, values * p.repetition_penalty)
    values -= p.frequency_penalty * counts + p.presence_penalty * (counts > 0)
    row[ids] = np.clip(values, -LARGEST, LARGEST)  # a tiny repetition penalty leads out of float32
