"""Tokens of a whole row of logits, for the draws that its likeliest tokens alone do not decide. Knows no requests."""

import math
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from scheduler.adjust import Logits
from scheduler.params import SamplingParams

BLOCK = 128
"""Weights that are added up together where a token is drawn from the whole vocabulary."""

DEPTH = 64
"""Tokens that are compared at once where the likeliest are looked for."""

LEAST_TEMPERATURE = 1e-30
"""Float32 holds it; no two logits are so close that a lower one would tell them apart."""


class Undecided(NamedTuple):
    """A row, and what is known of it.

    Attributes:
        logits: [vocabulary].
        ids: [C], the likeliest tokens, as `top`.
        weights: [C], what they weigh, the first 1.
        total: what the vocabulary weighs, at least as much as they.
    """

    logits: Logits
    ids: NDArray[np.integer]
    weights: NDArray[np.float64]
    total: float


def drawn(row: Undecided, p: SamplingParams, uniform: float) -> int:
    """The token at `uniform` of the cumulative distribution: `ids`, then the others by id; or likeliest first."""
    if p.top_k == 0 and p.top_p == 1.0 and p.min_p == 0.0:
        return _behind(row, p, uniform)
    ids, weights = _nucleus(row, p)
    return int(ids[_pick(weights, uniform)])


def least_below(p: SamplingParams) -> float:
    """How far below the largest logit min_p lets one lie: that tells weights apart as their quotient would."""
    return max(p.temperature, LEAST_TEMPERATURE) * math.log(p.min_p) if p.min_p > 0 else -math.inf


def weights_of(logits: Logits, p: SamplingParams) -> Logits:
    """What every token weighs, the likeliest 1. In float32, a tenth of the time: a weight is off by a ten-millionth."""
    weights: Logits = logits - logits.max()
    if p.temperature != 1.0:
        with np.errstate(over="ignore"):
            weights /= max(p.temperature, LEAST_TEMPERATURE)
    np.exp(weights, out=weights)
    return weights


def top(row: Logits, k: int) -> NDArray[np.intp]:
    """The k likeliest ids, likeliest first, ties by the lower id, also at the cut."""
    ids = (row >= _bound(row, k)).nonzero()[0] if k < len(row) else np.arange(len(row))
    return ids[(-row[ids]).argsort(kind="stable")][:k]


def _behind(row: Undecided, p: SamplingParams, uniform: float) -> int:
    """The token of a point that lies behind the likeliest ones: of all others, by id."""
    inner = float(row.weights.cumsum()[-1])
    rest = weights_of(row.logits, p)
    rest[row.ids] = 0
    if not rest.any():  # the total was rounded up
        return int(row.ids[np.count_nonzero(row.weights) - 1])
    return _pick_of_many(rest, (uniform * row.total - inner) / (row.total - inner))


def _nucleus(row: Undecided, p: SamplingParams) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The ids that min_p, top_k and then top_p leave, likeliest first, and their weights."""
    vocabulary = len(row.logits)
    limit = min(p.top_k or vocabulary, vocabulary)
    if p.min_p > 0:
        limit = min(limit, int(np.count_nonzero(row.logits - row.logits.max() >= least_below(p))))
    ids, weights = _top(row, limit if limit < vocabulary else min(8 * len(row.ids), limit), p)
    cumulative = weights.cumsum()
    bound = p.top_p * (row.total if limit == vocabulary else float(cumulative[-1]))  # of what the others left
    while cumulative[-1] < bound and len(ids) < limit:
        ids, weights = _top(row, min(limit, 8 * len(ids)), p)
        cumulative = weights.cumsum()
    keep = int(cumulative.searchsorted(bound)) + 1
    return ids[:keep], weights[:keep]


def _top(row: Undecided, k: int, p: SamplingParams) -> tuple[NDArray[np.intp], NDArray[np.float64]]:
    """The k likeliest ids, as `top`, and their weights."""
    ids = top(row.logits, k)
    below = row.logits[ids] - row.logits[ids[0]]
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the likeliest to minus infinity
        return ids, np.exp(below.astype(np.float64) / max(p.temperature, LEAST_TEMPERATURE))


def _bound(row: Logits, k: int) -> np.float32:
    """A value that at least k tokens reach, and not many more: the k-th of the largest of groups of tokens."""
    depth = min(len(row) // (4 * k), DEPTH)
    groups = row[: len(row) // depth * depth].reshape(depth, -1).max(axis=0) if depth > 1 else row
    bound: np.float32 = np.partition(groups, len(groups) - k)[len(groups) - k]
    return bound


def _pick_of_many(weights: Logits, uniform: float) -> int:
    """As `_pick`: first a block, then one of its tokens, so that most weights are only added up."""
    sums = np.add.reduceat(weights, np.arange(0, len(weights), BLOCK)).astype(np.float64)
    at = _pick(sums, uniform)
    block = weights[at * BLOCK : (at + 1) * BLOCK].astype(np.float64)
    return at * BLOCK + _pick(block, float((uniform * sums.sum() - sums[:at].sum()) / sums[at]))


def _pick(weights: NDArray[np.float64], uniform: float) -> int:
    """The place at `uniform` of the cumulative weights, never one that weighs nothing."""
    cumulative = weights.cumsum()
    last = int(cumulative.searchsorted(cumulative[-1]))  # what follows weighs nothing
    return min(int(cumulative.searchsorted(uniform * cumulative[-1], side="right")), last)
