"""What the next step computes: a pure function of numbers; the plan is data, and whoever applies it is elsewhere.

Knows neither requests' insides nor clocks nor arrays.
"""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from heapq import merge
from itertools import takewhile

LEAST_PREFILL = 16
"""Rows of prefill that a step may hold however many requests decode, so that some prompt always advances."""

MOST_SCORED = 256
"""Rows of a step whose logits are reported, at the most, however many rows it has: each is a vocabulary of floats."""


@dataclass(frozen=True, slots=True)
class Pending:
    """What planning sees of a request.

    Attributes:
        id: the request's.
        slot: its KV slot, or the one that it would start in.
        computed: tokens in its cache.
        rows: tokens to be computed, at least one.
        generated: whether it has a token of its own, so that the last of the rows is one.
        waits: whether it has no slot yet.
        held: tokens whose memory its slot holds, those of an owner before it included.
        turn: whose rows are prefilled first, the lowest.
        scored_rows: how many of the rows, from the first on, have their logits reported.
        draws: whether it goes on after its prompt; False where the prompt is only to be scored.
    """

    id: str
    slot: int
    computed: int
    rows: int
    generated: bool = False
    waits: bool = False
    held: int = 0
    turn: tuple[float, ...] = ()
    scored_rows: int = 0
    draws: bool = True

    @property
    def decodes(self) -> bool:
        """Whether only the token that it was given last is to be computed."""
        return self.generated and self.rows == 1

    @property
    def promised(self) -> int:
        """Tokens whose memory it holds once it has caught up and had its next one."""
        return max(self.held, self.computed + self.rows + 1)

    @property
    def least(self) -> int:
        """Tokens whose memory it holds after the smallest step that lets it advance."""
        return max(self.held, self.computed + 1)


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
        decodes: whether its one row is the token that the request was given last; what is not is prefill.
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
    """One step: slices by slot; `admitted` names those that leave the queue."""

    slices: tuple[Slice, ...] = ()
    admitted: tuple[str, ...] = ()

    @property
    def decode_rows(self) -> int:
        """How many requests decode a token."""
        return sum(s.decodes for s in self.slices)

    @property
    def prefill_rows(self) -> int:
        """How many tokens of prompts are computed, and of texts that are computed again."""
        return sum(s.count for s in self.slices if not s.decodes)


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

    Whoever decodes is always in. Prefill takes what is left, in turns: `waiting` is sorted by them, and consumed only
    as far as there is room; a request of it that finds none lets nobody pass who waits behind it.
    """
    slices = [_slice(p, 1) for p in running if p.decodes]
    tokens = room.tokens - sum(p.least if p.decodes else max(p.held, p.computed) for p in running)
    prefill = _Prefill(max(min(room.rows - len(slices), room.prefill), LEAST_PREFILL), tokens)
    admitted = []
    prompts = sorted((p for p in running if not p.decodes), key=_by_turn)
    for p in merge(prompts, takewhile(lambda _: prefill.admits, waiting), key=_by_turn):
        if prefill.take(p):
            admitted += [p.id] * p.waits
        elif p.waits and not p.scored_rows:  # one that scores its prompt may lack only the room for that
            prefill.admits = False
    return StepPlan(tuple(sorted(slices + prefill.slices, key=_by_slot)), tuple(admitted))


class _Prefill:
    """The prefill slices of a plan while it is made.

    Attributes:
        admits: whether those who wait are still looked at.
    """

    def __init__(self, rows: int, tokens: int) -> None:
        self.slices: list[Slice] = []
        self.admits = True
        self._room, self._tokens, self._scores = rows, tokens, MOST_SCORED

    def take(self, p: Pending) -> bool:
        """Add as many of the request's rows as there is room for; False when neither rows nor tokens allow one."""
        before = 0 if p.waits else max(p.held, p.computed)
        count = min(p.rows, self._room, self._tokens + before - p.computed)
        if p.scored_rows:
            count = min(count, self._scores)
        if count <= 0:
            return False
        made = _slice(p, count)
        self.slices.append(made)
        self._room -= count
        self._tokens -= max(p.held, p.computed + count) - before
        self._scores -= made.scored
        self.admits = self.admits and self._room > 0
        return True


def _slice(p: Pending, count: int) -> Slice:
    samples, scored = count == p.rows and p.draws, min(count, p.scored_rows)
    return Slice(p.id, p.slot, p.computed, count, decodes=p.decodes, samples=samples, scored=scored)


def _by_slot(s: Slice) -> int:
    return s.slot


def _by_turn(p: Pending) -> tuple[float, ...]:
    return p.turn
