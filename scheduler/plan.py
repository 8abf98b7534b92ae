"""What the next step computes: a pure function of numbers; the plan is data, and whoever applies it is elsewhere.

Knows neither requests' insides nor clocks nor arrays.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

LEAST_PREFILL = 16
"""Rows of prefill that a step may hold however many requests decode, so that some prompt always advances."""

MOST_SCORED = 256
"""Rows of a step whose logits are reported, at the most, however many rows it has: each is a vocabulary of floats."""

PADDING = 2
"""A prefill group may be padded to this many times the step's rows: slots far apart are not prefilled together."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What planning sees of a request.

    Attributes:
        id: the request's.
        slot: its KV slot, or None while it waits.
        computed: tokens in its cache.
        prompt_rows: pending tokens of the prompt, to be prefilled.
        replay_rows: pending generated tokens; each is a decode row of its own, because a row that decode
            wrote and one that prefill wrote differ in the last bits of the cache.
        scored_rows: how many of the prompt rows, from the first on, have their logits reported.
        draws: whether it goes on after its prompt; False where the prompt is only to be scored.
    """

    id: str
    slot: int | None
    computed: int
    prompt_rows: int
    replay_rows: int
    scored_rows: int = 0
    draws: bool = True


@dataclass(frozen=True, slots=True)
class Slice:
    """The rows of one request in one step: tokens [start, start + count) of it.

    Attributes:
        decodes: whether it belongs to the decode group (count is 1) or to the prefill group.
        samples: whether its last row's logits give the request's next token.
        scored: how many rows, from the first on, have their logits reported; none of them is the one that samples.
    """

    id: str
    slot: int
    start: int
    count: int
    decodes: bool
    samples: bool
    scored: int = 0


@dataclass(frozen=True, slots=True)
class StepPlan:
    """One step: decode slices by slot, then prefill slices by slot; `admitted` names those that leave the queue."""

    slices: tuple[Slice, ...] = ()
    admitted: tuple[str, ...] = ()

    @property
    def decode_rows(self) -> int:
        """How many requests decode a token."""
        return sum(s.decodes for s in self.slices)

    @property
    def prefill_rows(self) -> int:
        """How many prompt tokens are computed in the prefill group."""
        return sum(s.count for s in self.slices if not s.decodes)


def chunk(pending: int, room: int) -> int:
    """How many of `pending` prompt rows to compute when `room` rows are left; 0 waits for a roomier step.

    A prefill chunk of exactly one row would run the attention kernel for single rows, whose last bits differ from
    the kernel for several, so results would depend on how the prompt was cut. Hence no chunk of one and no cut that
    leaves one; a prompt that is one token long is a single row always, alone and in company. With `room` of at
    least 3 the answer is never 0.
    """
    count = min(pending, room)
    if count == pending:
        return count
    if pending - count == 1:
        count -= 1
    return count if count > 1 else 0


def plan(running: Sequence[Pending], waiting: Iterable[Pending], free: Sequence[int], rows: int) -> StepPlan:
    """Let every request catch up as far as a step of `rows` rows allows.

    Decode rows are always in. Prefill takes what is left, in order of arrival: `running` and `waiting` are sorted
    by it, and a waiting request is admitted to the lowest of the `free` slots (ascending) once rows are left for it.
    """
    decode = [
        Slice(p.id, _slot(p), p.computed, 1, decodes=True, samples=p.replay_rows == 1)
        for p in running
        if p.prompt_rows == 0
    ]
    prefill = _Prefill(max(rows - len(decode), LEAST_PREFILL), PADDING * max(rows, LEAST_PREFILL))
    for p in running:
        if p.prompt_rows > 0:
            prefill.take(p, _slot(p))
    admitted = []
    slots = iter(free)
    slot = next(slots, None)
    for p in waiting:
        if slot is None:
            break
        if prefill.take(p, slot):
            admitted.append(p.id)
            slot = next(slots, None)
        elif not p.scored_rows:  # one that scores its prompt may lack only the room for that
            break
    decode += [s for s in prefill.slices if s.decodes]
    chunks = [s for s in prefill.slices if not s.decodes]
    slices = sorted(decode, key=_by_slot) + sorted(chunks, key=_by_slot)
    return StepPlan(tuple(slices), tuple(admitted))


class _Prefill:
    """The prefill slices of a plan while it is made."""

    def __init__(self, room: int, area: int) -> None:
        self.slices: list[Slice] = []
        self._room, self._area, self._scores = room, area, MOST_SCORED
        self._slots: list[int] = []
        self._longest = 0

    def take(self, p: Pending, slot: int) -> bool:
        """Add a chunk of the request's prompt; False when neither rows nor padding allow one."""
        count = chunk(p.prompt_rows, min(self._room, self._scores) if p.scored_rows else self._room)
        if count == 0 or not self._fits(slot, count):
            return False
        samples = count == p.prompt_rows and p.replay_rows == 0 and p.draws
        scored = min(count, p.scored_rows)
        self.slices.append(Slice(p.id, slot, p.computed, count, decodes=count == 1, samples=samples, scored=scored))
        self._room -= count
        self._scores -= scored
        if count > 1:
            self._slots.append(slot)
            self._longest = max(self._longest, count)
        return True

    def _fits(self, slot: int, count: int) -> bool:
        if count == 1 or not self._slots:
            return True
        width = max(slot, *self._slots) - min(slot, *self._slots) + 1
        return width * max(self._longest, count) <= self._area


def _slot(p: Pending) -> int:
    assert p.slot is not None, f"{p.id} runs without a slot"
    return p.slot


def _by_slot(s: Slice) -> int:
    return s.slot
