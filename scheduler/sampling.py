"""Logits and parameters to tokens, each request with its own random generator. Knows nothing of requests.

Every operation here works row by row, so a request's token does not depend on who else is sampled with it.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from scheduler.adjust import History, Logits, adjusted, untouched
from scheduler.params import SamplingParams

CANDIDATES = 256
"""How many of the likeliest tokens are sorted first; only a flat distribution needs more for its top_p, by eights."""


def sample(
    logits: Logits,
    params: Sequence[SamplingParams],
    generators: Sequence[np.random.Generator],
    histories: Sequence[History],
) -> list[int | None]:
    """The next token of each row of logits [R, vocabulary]; None where the row holds no usable numbers.

    One uniform number is drawn per row that is not greedy. Rows that ask for nothing cost an argmax.
    """
    likeliest = np.argmax(logits, axis=1)  # a NaN's place where there is one
    usable = np.isfinite(logits[np.arange(len(logits)), likeliest]).tolist()
    return [
        (token if p.greedy and untouched(p, h) else _choose(row, p, g, h)) if ok else None
        for token, ok, row, p, g, h in zip(
            likeliest.tolist(), usable, logits, params, generators, histories, strict=True
        )
    ]


def _choose(row: Logits, p: SamplingParams, generator: np.random.Generator, history: History) -> int | None:
    if not untouched(p, history):
        row = adjusted(row, p, history)
    likeliest = int(np.argmax(row))
    if not np.isfinite(row[likeliest]):
        return None
    return likeliest if p.greedy else _draw(row, p, generator.random())


def _draw(row: Logits, p: SamplingParams, uniform: float) -> int:
    """The token at `uniform` of the cumulative distribution, likeliest first, ties by id."""
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the likeliest to minus infinity
        weights = np.exp((row - row.max()).astype(np.float64) / p.temperature)
    if p.top_k == 0 and p.top_p == 1.0 and p.min_p == 0.0:
        return _pick(weights, uniform)
    ids = _likeliest(row, weights, p)
    return int(ids[_pick(weights[ids], uniform)])


def _likeliest(row: Logits, weights: NDArray[np.float64], p: SamplingParams) -> NDArray[np.intp]:
    """The ids that min_p, top_k and then top_p leave, likeliest first, ties by id; at least one."""
    limit = min(p.top_k or len(row), int(np.count_nonzero(weights >= p.min_p)))  # the likeliest weighs 1
    ids = top(row, min(limit, CANDIDATES))
    # top_p is of the distribution that the others left
    mass = weights[ids].sum() if limit <= CANDIDATES else _mass(row, weights, limit)
    cumulative = np.cumsum(weights[ids])
    while cumulative[-1] < p.top_p * mass and len(ids) < limit:
        ids = top(row, min(limit, 8 * len(ids)))
        cumulative = np.cumsum(weights[ids])
    keep = int(np.searchsorted(cumulative, p.top_p * mass)) + 1
    return ids[:keep]


def _mass(row: Logits, weights: NDArray[np.float64], limit: int) -> float:
    return float(weights.sum() if limit == len(row) else weights[top(row, limit)].sum())


def top(row: Logits, k: int) -> NDArray[np.intp]:
    """The k likeliest ids, likeliest first, ties by the lower id, also at the cut."""
    if k < len(row):
        threshold = row[np.argpartition(row, len(row) - k)[len(row) - k]]
        ids = np.flatnonzero(row >= threshold)
    else:
        ids = np.arange(len(row))
    return ids[np.argsort(-row[ids], kind="stable")][:k]


def _pick(weights: NDArray[np.float64], uniform: float) -> int:
    cumulative = np.cumsum(weights)
    last = int(np.searchsorted(cumulative, cumulative[-1]))  # what follows weighs nothing
    return min(int(np.searchsorted(cumulative, uniform * cumulative[-1], side="right")), last)
