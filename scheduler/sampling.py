"""Logits and parameters to tokens, each request with its own random generator. Knows nothing of requests.

Every operation here works row by row, so a request's token does not depend on who else is sampled with it.
"""

import sys
from collections.abc import Sequence
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.adjust import History, Logits, adjusted, untouched
from scheduler.params import SamplingParams

CANDIDATES = 256
"""How many of the likeliest tokens are sorted first; only a flat distribution needs more for its top_p, by eights."""

BLOCK = 128
"""Weights that are added up together where a token is drawn from the whole vocabulary."""

DEPTH = 64
"""Tokens that are compared at once where the likeliest are looked for."""

LEAST_TEMPERATURE = 1e-30
"""Float32 holds it; no two logits are so close that a lower one would tell them apart."""


def sample(
    logits: Logits,
    params: Sequence[SamplingParams],
    generators: Sequence[np.random.Generator],
    histories: Sequence[History],
) -> list[int | None]:
    """The next token of each row of logits [R, vocabulary]; None where the row holds no usable numbers.

    One uniform number is drawn per row that is not greedy. Rows that ask for nothing cost an argmax.
    """
    likeliest = logits.argmax(axis=1)  # a NaN's place where there is one
    largest = logits[np.arange(len(logits)), likeliest]
    return [
        _choose(Row(row, most), token, p, g, h) if ok else None
        for row, token, most, ok, p, g, h in zip(
            logits,
            likeliest.tolist(),
            largest,
            np.isfinite(largest).tolist(),
            params,
            generators,
            histories,
            strict=True,
        )
    ]


class Row(NamedTuple):
    """Logits [vocabulary] of one request and the largest of them."""

    logits: Logits
    largest: np.float32


def _choose(row: Row, likeliest: int, p: SamplingParams, generator: np.random.Generator, h: History) -> int | None:
    if not untouched(p, h):
        logits = adjusted(row.logits, p, h)
        likeliest = int(logits.argmax())
        row = Row(logits, logits[likeliest])
        if not np.isfinite(row.largest):
            return None
    return likeliest if p.greedy else _draw(row, p, generator.random())


def _draw(row: Row, p: SamplingParams, uniform: float) -> int:
    """The token at `uniform` of the cumulative distribution: by id, or likeliest first where some are left out."""
    if p.top_k == 0 and p.top_p == 1.0 and p.min_p == 0.0:
        return _pick_of_many(_weights(row, p), uniform)
    ids, weights = _likeliest(row, p)
    return int(ids[_pick(weights, uniform)])


def _likeliest(row: Row, p: SamplingParams) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The ids that min_p, top_k and then top_p leave, likeliest first, ties by id, and their weights; at least one."""
    limit = min(p.top_k or sys.maxsize, len(row.logits))
    if p.min_p > 0:
        limit = min(limit, int(np.count_nonzero(_weights(row, p) >= p.min_p)))  # the likeliest weighs 1
    ids, weights = _top(row, min(limit, CANDIDATES), p)
    # top_p is of the distribution that the others left
    mass = float(weights.sum()) if limit <= CANDIDATES else _mass(row, p, limit)
    cumulative = weights.cumsum()
    while cumulative[-1] < p.top_p * mass and len(ids) < limit:
        ids, weights = _top(row, min(limit, 8 * len(ids)), p)
        cumulative = weights.cumsum()
    keep = int(cumulative.searchsorted(p.top_p * mass)) + 1
    return ids[:keep], weights[:keep]


def _mass(row: Row, p: SamplingParams, limit: int) -> float:
    """What the likeliest `limit` tokens weigh."""
    if limit < len(row.logits):
        return float(_top(row, limit, p)[1].sum())
    return float(_block_sums(_weights(row, p)).sum())


def _top(row: Row, k: int, p: SamplingParams) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The k likeliest ids, as `top`, and their weights."""
    ids = top(row.logits, k)
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the likeliest to minus infinity
        return ids, np.exp((row.logits[ids] - row.largest).astype(np.float64) / p.temperature)


def _weights(row: Row, p: SamplingParams) -> Logits:
    """What every token weighs, the likeliest 1. In float32, a tenth of the time: a weight is off by a ten-millionth."""
    weights: Logits = row.logits - row.largest
    if p.temperature != 1.0:
        with np.errstate(over="ignore"):
            weights /= max(p.temperature, LEAST_TEMPERATURE)
    np.exp(weights, out=weights)
    return weights


def top(row: Logits, k: int) -> NDArray[np.intp]:
    """The k likeliest ids, likeliest first, ties by the lower id, also at the cut."""
    ids = (row >= _bound(row, k)).nonzero()[0] if k < len(row) else np.arange(len(row))
    return ids[(-row[ids]).argsort(kind="stable")][:k]


def _bound(row: Logits, k: int) -> np.float32:
    """A value that at least k tokens reach, and not many more: the k-th of the largest of groups of tokens."""
    depth = min(len(row) // (4 * k), DEPTH)
    groups = row[: len(row) // depth * depth].reshape(depth, -1).max(axis=0) if depth > 1 else row
    bound: np.float32 = np.partition(groups, len(groups) - k)[len(groups) - k]
    return bound


def _pick_of_many(weights: Logits, uniform: float) -> int:
    """As `_pick`: first a block, then one of its tokens, so that most weights are only added up."""
    sums = _block_sums(weights)
    at = _pick(sums, uniform)
    block = weights[at * BLOCK : (at + 1) * BLOCK].astype(np.float64)
    return at * BLOCK + _pick(block, float((uniform * sums.sum() - sums[:at].sum()) / sums[at]))


def _block_sums(weights: Logits) -> NDArray[np.float64]:
    """What each BLOCK of weights adds up to, the last one shorter."""
    return np.add.reduceat(weights, np.arange(0, len(weights), BLOCK)).astype(np.float64)


def _pick(weights: NDArray[np.float64], uniform: float) -> int:
    """The place at `uniform` of the cumulative weights, never one that weighs nothing."""
    cumulative = weights.cumsum()
    last = int(cumulative.searchsorted(cumulative[-1]))  # what follows weighs nothing
    return min(int(cumulative.searchsorted(uniform * cumulative[-1], side="right")), last)
