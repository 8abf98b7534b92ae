"""How likely tokens were, by the model itself: of the raw logits, before bias, penalties, temperature and truncation.

The natural logarithm of softmax, as `logit - max - log(sum(exp(logit - max)))`: exponentials in float32, their sum and
all that follows in float64, which is within 1e-6 of computing everything in float64. Row by row; knows nothing of
requests.
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.tail import top

FLOOR = -9999.0
"""Reported for what the model holds impossible, since JSON has no infinity; vLLM's value."""


@dataclass(frozen=True, slots=True)
class Ranked:
    """A token, its logprob, and how many places from the likeliest, which has 1; ties by the lower id."""

    token: int
    logprob: float
    rank: int


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """What is reported of one place in a text: the token that stands there, and the likeliest, in order."""

    chosen: Ranked
    top: tuple[Ranked, ...]


def token_logprobs(row: NDArray[np.float32], token: int, count: int) -> TokenLogprobs | None:
    """The report on `token` and the `count` likeliest ones from a place's logits [vocabulary].

    None where these are no usable numbers.
    """
    highest = row.max()
    if not np.isfinite(highest):
        return None
    with np.errstate(over="ignore"):
        normaliser = float(highest) + float(np.log(np.exp(row - highest).sum(dtype=np.float64)))
    likeliest = top(row, min(count, len(row))).tolist() if count else []

    def ranked(id_: int, rank: int) -> Ranked:
        return Ranked(id_, max(float(row[id_]) - normaliser, FLOOR), rank)

    return TokenLogprobs(
        ranked(token, _rank(row, token)), tuple(ranked(id_, place) for place, id_ in enumerate(likeliest, start=1))
    )


def _rank(row: NDArray[np.float32], token: int) -> int:
    value = row[token]
    return 1 + int(np.count_nonzero(row > value)) + int(np.count_nonzero(row[:token] == value))
