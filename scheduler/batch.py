"""A plan and the tokens it speaks of, packed into the arrays of one model run, and the arrays that come back.

Pure; knows nothing of onnxruntime. All rows are alike, whether a request decodes or its prompt is prefilled: a token,
its sequence's slot, and its place in the sequence.

    input_ids  a7 b0 b1 b2 c4      T = 5
    slots       1  3  3  3  0
    positions   7  0  1  2  4
"""

from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.plan import Slice, StepPlan
from scheduler.tokens import TokenIds

CANDIDATES = 128
"""How many of the likeliest tokens come with each row of logits; fewer where the vocabulary is smaller."""


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The arrays of one run.

    Attributes:
        input_ids: int64 [T].
        slots: int32 [T], whose each row is.
        positions: int32 [T], the tokens before it in its sequence.
        logit_rows: int64 [R], the rows whose logits are wanted: those that sample, then those that are scored.
        sampled: the requests of the rows that sample, in the same order.
        scored: the slices of the rows that are scored, in the same order, `slice.scored` rows each.
    """

    input_ids: NDArray[np.int64]
    slots: NDArray[np.int32]
    positions: NDArray[np.int32]
    logit_rows: NDArray[np.int64]
    sampled: tuple[str, ...]
    scored: tuple[Slice, ...]


@dataclass(frozen=True, slots=True, eq=False)
class Output:
    """What a run says of its R logit rows.

    Attributes:
        logits: float32 [R, vocabulary].
        top_ids: int32 [R, C], the likeliest tokens, likeliest first, ties by the lower id; C is CANDIDATES at the most.
        top_values: float32 [R, C], their logits; the first is NaN where the row holds no usable numbers.
        mass: float32 [R], what the vocabulary weighs where the likeliest token weighs 1: the sum of
            exp((logit - largest) / temperature), for the temperature that the run was given.
    """

    logits: NDArray[np.float32]
    top_ids: NDArray[np.int32]
    top_values: NDArray[np.float32]
    mass: NDArray[np.float32]


def pack(plan: StepPlan, tokens: Callable[[str], TokenIds]) -> Batch:
    """The arrays of a plan that has slices; `tokens(id)` gives a request's tokens, prompt first."""
    ids = [tokens(s.id)[s.start : s.start + s.count] for s in plan.slices]
    counts = np.array([s.count for s in plan.slices])
    begins = counts.cumsum() - counts  # where each slice's rows begin
    before = np.array([s.start for s in plan.slices]) - begins
    placed = list(zip(plan.slices, begins.tolist(), strict=True))
    sampled = [(begin + s.count - 1, s.id) for s, begin in placed if s.samples]
    scored = [row for s, begin in placed for row in range(begin, begin + s.scored)]
    return Batch(
        input_ids=np.concatenate(ids, dtype=np.int64),
        slots=np.array([s.slot for s in plan.slices], np.int32).repeat(counts),
        positions=(np.arange(counts.sum()) + before.repeat(counts)).astype(np.int32),
        logit_rows=np.array([row for row, _ in sampled] + scored, np.int64),
        sampled=tuple(id_ for _, id_ in sampled),
        scored=tuple(s for s in plan.slices if s.scored),
    )
