"""What the next step computes: a pure function of numbers; the plan is data, and whoever applies it is elsewhere.

Knows neither requests' insides nor clocks nor arrays.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import takewhile

LEAST_PREFILL = 16
"""Rows of prefill that a step may hold however many requests decode, so that some prompt always advances."""

LEAST_CHUNK = 3
"""Rows with which any prompt can advance, whatever is left of it: see `chunk`."""

MOST_SCORED = 256
"""Rows of a step whose logits are reported, at the most, however many rows it has: each is a vocabulary of floats."""

PADDING = 2
"""A prefill group may be padded to this many times the step's rows: slots far apart are not prefilled together."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What planning sees of a request.

    Attributes:
        id: the request's.
        slot: its KV slot, or the one that it would start in.
        computed: tokens in its cache.
        prompt_rows: pending tokens of the prompt, to be prefilled.
        replay_rows: pending generated tokens; each is a decode row of its own, because a row that decode
            wrote and one that prefill wrote differ in the last bits of the cache.
        waits: whether it has no slot yet.
        held: tokens whose memory its slot holds, those of an owner before it included.
        turn: whose prompt is computed first, the lowest.
        scored_rows: how many of the prompt rows, from the first on, have their logits reported.
        draws: whether it goes on after its prompt; False where the prompt is only to be scored.
    """

    id: str
    slot: int
    computed: int
    prompt_rows: int
    replay_rows: int
    waits: bool = False
    held: int = 0
    turn: tuple[float, ...] = ()
    scored_rows: int = 0
    draws: bool = True

    @property
    def promised(self) -> int:
        """Tokens whose memory it holds once it has caught up and had its next one."""
        return max(self.held, self.computed + self.prompt_rows + self.replay_rows + 1)

    @property
    def least(self) -> int:
        """Tokens whose memory it holds after the smallest step that lets it advance."""
        rows = 1 if self.prompt_rows == 0 else self.prompt_rows if self.prompt_rows <= LEAST_CHUNK else 2
        return max(self.held, self.computed + rows)


@dataclass(frozen=True, slots=True)
class Room:
    """What a step may fill.

    Attributes:
        rows: of the step.
        prefill: rows of prefill, where that is less (LEAST_PREFILL at any rate).
        tokens: in all slots after the step.
    """

    rows: int
    prefill: int
    tokens: int


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
    count = max(min(pending, room), 0)
    if count == pending:
        return count
    if pending - count == 1:
        count -= 1
    return count if count > 1 else 0


def overdrawn(running: Sequence[Pending], tokens: int) -> Sequence[Pending]:
    """Who has to make way, the last first, so that everybody else can advance within so many tokens.

    `running` is in the order of seniority, and its first, whom the budget always holds alone, never makes way: so the
    oldest request always finishes, and after it the next.
    """
    spent, keep = sum(p.least for p in running), len(running)
    while spent > tokens and keep > 1:
        keep -= 1
        spent -= running[keep].least
    return running[: keep - 1 : -1] if keep else ()


def plan(running: Sequence[Pending], waiting: Iterable[Pending], room: Room) -> StepPlan:
    """Let every request catch up as far as a step allows.

    Decode rows are always in. Prefill takes what is left, in turns: `waiting` is sorted by them, and consumed only as
    far as there is room; a request of it that finds none lets nobody pass who waits behind it.
    """
    decode = [
        Slice(p.id, p.slot, p.computed, 1, decodes=True, samples=p.replay_rows == 1)
        for p in running
        if p.prompt_rows == 0
    ]
    tokens = room.tokens - sum(max(p.held, p.computed + (p.prompt_rows == 0)) for p in running)
    prefill = _Prefill(room, max(min(room.rows - len(decode), room.prefill), LEAST_PREFILL), tokens)
    admitted = []
    prompts = sorted((p for p in running if p.prompt_rows), key=_by_turn)
    for p in merge(prompts, takewhile(lambda _: prefill.admits, waiting), key=_by_turn):
        if prefill.take(p):
            admitted += [p.id] * p.waits
        elif p.waits and not p.scored_rows:  # one that scores its prompt may lack only the room for that
            prefill.admits = False
    decode += [s for s in prefill.slices if s.decodes]
    chunks = [s for s in prefill.slices if not s.decodes]
    slices = sorted(decode, key=_by_slot) + sorted(chunks, key=_by_slot)
    return StepPlan(tuple(slices), tuple(admitted))


class _Prefill:
    """The prefill slices of a plan while it is made.

    Attributes:
        admits: whether those who wait are still looked at.
    """

    def __init__(self, room: Room, rows: int, tokens: int) -> None:
        self.slices: list[Slice] = []
        self.admits = True
        self._room, self._tokens, self._scores = rows, tokens, MOST_SCORED
        self._area = PADDING * max(room.rows, LEAST_PREFILL)
        self._slots: list[int] = []
        self._longest = 0

    def take(self, p: Pending) -> bool:
        """Add a chunk of the request's prompt; False when neither rows nor tokens nor padding allow one."""
        before = 0 if p.waits else max(p.held, p.computed)
        room = min(self._room, self._tokens + before - p.computed)
        count = chunk(p.prompt_rows, min(room, self._scores) if p.scored_rows else room)
        if count <= 0 or not self._fits(p.slot, count):
            return False
        samples = count == p.prompt_rows and p.replay_rows == 0 and p.draws
        scored = min(count, p.scored_rows)
        self.slices.append(Slice(p.id, p.slot, p.computed, count, decodes=count == 1, samples=samples, scored=scored))
        self._room -= count
        self._tokens -= max(p.held, p.computed + count) - before
        self._scores -= scored
        self.admits = self.admits and self._room > 0
        if count > 1:
            self._slots.append(p.slot)
            self._longest = max(self._longest, count)
        return True

    def _fits(self, slot: int, count: int) -> bool:
        if count == 1 or not self._slots:
            return True
        width = max(slot, *self._slots) - min(slot, *self._slots) + 1
        return width * max(self._longest, count) <= self._area


def _by_slot(s: Slice) -> int:
    return s.slot


def _by_turn(p: Pending) -> tuple[float, ...]:
    return p.turn
