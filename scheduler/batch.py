"""A plan and the tokens it speaks of, packed into the arrays of one model run. Pure; knows nothing of onnxruntime.

All linear layers see one row of T packed tokens. Around attention the rows are spread over two padded groups,
decode [B, 1] and prefill [B, S], each over a contiguous range of KV slots, and gathered back:

    packed rows   d0 d1 d2 | p0 p0 p0 p1 p1          T = 8
    decode group  slots 4..7   d0 d1 -- d2           slot 6 is idle: its query length is 0
    prefill group slots 2..3   p0 p0 p0              S = 3
                               p1 p1 --
    unpad         where each packed row lies in the two groups' flattened outputs, decode first
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.plan import Slice, StepPlan


@dataclass(frozen=True, slots=True, eq=False)
class Group:
    """One attention group over the KV slots [first, first + width).

    Attributes:
        longest: S, the padded query length.
        rows: int64 [width * S], the packed row of each padded place; padding repeats row 0.
        seqlens_k: int32 [width], tokens in the slot's cache after the step, less one; 0 where idle.
        query_seqlens: int32 [width], the slot's rows in this step; 0 where idle.
        total: upper bound of the tokens in any of the slots after the step, at least S.
    """

    first: int
    width: int
    longest: int
    rows: NDArray[np.int64]
    seqlens_k: NDArray[np.int32]
    query_seqlens: NDArray[np.int32]
    total: int


@dataclass(frozen=True, slots=True, eq=False)
class Batch:
    """The arrays of one run.

    Attributes:
        input_ids: int64 [T].
        unpad: int64 [T].
        logit_rows: int64 [R], the packed rows whose logits are wanted: those that sample, then those that are scored.
        sampled: the requests of the rows that sample, in the same order.
        scored: the slices of the rows that are scored, in the same order, `slice.scored` rows each.
        decode: None when nothing decodes.
        prefill: None when nothing prefills.
    """

    input_ids: NDArray[np.int64]
    unpad: NDArray[np.int64]
    logit_rows: NDArray[np.int64]
    sampled: tuple[str, ...]
    scored: tuple[Slice, ...]
    decode: Group | None
    prefill: Group | None


def pack(plan: StepPlan, tokens: Callable[[str], Sequence[int]]) -> Batch:
    """The arrays of a plan that has slices; `tokens(id)` gives a request's tokens, prompt first."""
    ids: list[int] = []
    starts: list[int] = []
    for s in plan.slices:
        starts.append(len(ids))
        ids += tokens(s.id)[s.start : s.start + s.count]
    cut = plan.decode_rows  # a decode slice is one row, and they come first
    decode, unpad_decode = _group(plan.slices[:cut], starts[:cut])
    prefill, unpad_prefill = _group(plan.slices[cut:], starts[cut:])
    offset = decode.width if decode else ABSENT_ROWS
    placed = list(zip(plan.slices, starts, strict=True))
    sampled = [(start + s.count - 1, s.id) for s, start in placed if s.samples]
    scored = [row for s, start in placed for row in range(start, start + s.scored)]
    return Batch(
        input_ids=np.array(ids, np.int64),
        unpad=np.concatenate([unpad_decode, unpad_prefill + offset]),
        logit_rows=np.array([row for row, _ in sampled] + scored, np.int64),
        sampled=tuple(id_ for _, id_ in sampled),
        scored=tuple(s for s in plan.slices if s.scored),
        decode=decode,
        prefill=prefill,
    )


ABSENT_ROWS = 1
"""An absent group still has one padded row: the graph wants an idle slot in each."""


def _group(slices: Sequence[Slice], starts: Sequence[int]) -> tuple[Group | None, NDArray[np.int64]]:
    """The group of slices sorted by slot, and where each of their packed rows lies in its flattened output."""
    if not slices:
        return None, np.zeros(0, np.int64)
    first = slices[0].slot
    width = slices[-1].slot + 1 - first
    longest = max(s.count for s in slices)
    rows = np.zeros((width, longest), np.int64)
    seqlens_k, query_seqlens = np.zeros(width, np.int32), np.zeros(width, np.int32)
    at = np.array([s.slot - first for s in slices])
    seqlens_k[at] = [s.start + s.count - 1 for s in slices]
    query_seqlens[at] = [s.count for s in slices]
    if longest == 1:
        rows[at, 0] = starts
        places = at
    else:
        for row, s, start in zip(at, slices, starts, strict=True):
            rows[row, : s.count] = np.arange(start, start + s.count)
        places = np.flatnonzero(np.arange(longest) < query_seqlens[:, None])  # slices are in the order of their slots
    total = max(int(seqlens_k.max()) + 1, longest)
    return Group(first, width, longest, rows.ravel(), seqlens_k, query_seqlens, total), places
