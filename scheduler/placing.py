"""Where a waiting request would start, and with how many of its tokens computed: pure bookkeeping, nothing is done.

A text that begins like what a slot holds takes that slot over where nobody owns it and little would be lost, and is
given a copy where somebody does or much would. Only its last token is computed in any case: the next one is drawn
from its logits.

A request is admitted by its present need: its tokens so far and the next one. Knows neither requests nor the model.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from scheduler.slots import Prefix, SlotPool
from scheduler.tokens import TokenIds, common

OWN_ROWS = 1
"""Tokens that every request computes itself."""

PLENTY = 2
"""Times what is spent that the budget has to be, for a slot to keep memory that its next owner may never need."""

LEAST_SHARED = 8
"""Tokens below which sharing is not worth a copy: templates make all prompts begin alike."""


@dataclass(frozen=True, slots=True)
class Place:
    """Where a request starts.

    Attributes:
        slot: its slot from then on; a reusable prefix in it is forgotten where `source` is another slot or None.
        given: how many of its tokens are there already.
        source: the slot that they are in; None where none are.
        keep: tokens whose memory stays with the slot when what another left there is forgotten.
    """

    slot: int
    given: int = 0
    source: int | None = None
    keep: int = 0

    @property
    def takes_over(self) -> bool:
        """Whether it goes on with what is in its slot."""
        return self.slot == self.source


@dataclass(frozen=True, slots=True)
class Match:
    """What a text can be given.

    Attributes:
        prefix: who has it; None where nobody does.
        given: how many of its tokens that is.
    """

    prefix: Prefix | None = None
    given: int = 0


class Placing:
    """Finds places one after the other; each counts as taken for those that follow.

    Args:
        pool: of the slots, as they are before the step.
        running: what owners of slots can share.
        promised: tokens that the running requests have or will have when they have caught up.
    """

    def __init__(self, pool: SlotPool, running: Sequence[Prefix], promised: int) -> None:
        self._pool = pool
        self._running = running
        self._free = list(pool.free())
        self._kept = {prefix.slot: prefix for prefix in pool.kept}
        self._pinned: set[int] = set()  # prefixes that will be copied, and so must stay for now
        self._room = pool.budget - promised

    def match(self, tokens: TokenIds, salt: str | None) -> Match:
        """Who shares the most of a text; of equals one whose slot is nobody's.

        Args:
            tokens: the text.
            salt: only prefixes with the same are shared; None shares nothing.
        """
        best = Match()
        for prefix in (*self._kept.values(), *self._running) if salt is not None else ():
            if prefix.salt == salt:
                count = min(common(prefix.tokens, tokens), len(tokens) - OWN_ROWS)
                if count > best.given and count >= LEAST_SHARED:
                    best = Match(prefix, count)
        return best

    def place(self, match: Match, need: int, most: int = 0) -> Place | None:
        """The place of a request or None where there is none.

        Args:
            match: what its tokens can be given now.
            need: its tokens so far and the next one.
            most: tokens that it may come to, where that is known.
        """
        if match.prefix is not None:
            given = match.given
            place = self._take_over(match.prefix, given, need) or self._copy(match.prefix, given, need, most)
            if place is not None:
                return place
        target = self._target()
        if target is None or need > self._room:
            return None
        keep = self._keep(target, need, most, self._room)
        return self._claim(Place(target, keep=keep), max(need, keep))

    def _take_over(self, prefix: Prefix, given: int, need: int) -> Place | None:
        """The prefix's own slot, where that loses less than it keeps, or there is no other."""
        slot = prefix.slot
        if self._kept.get(slot) is not prefix or slot in self._pinned:
            return None
        if 2 * given < len(prefix.tokens) and self._target(slot) is not None:
            return None
        cost = max(self._pool.held(slot), need)
        return self._claim(Place(slot, given, slot), cost) if cost <= self._room else None

    def _copy(self, prefix: Prefix, given: int, need: int, most: int) -> Place | None:
        """Another slot, where the room is enough for both."""
        kept = self._kept.get(prefix.slot) is prefix
        pin = self._pool.held(prefix.slot) if kept and prefix.slot not in self._pinned else 0
        target = self._target(prefix.slot)
        if target is None or need + pin > self._room:
            return None
        if kept:
            self._pinned.add(prefix.slot)
        keep = self._keep(target, need, most, self._room - pin)
        return self._claim(Place(target, given, prefix.slot, keep), max(need, keep) + pin)

    def _keep(self, slot: int, need: int, most: int, room: int) -> int:
        """How much of the slot's memory goes to its next owner: giving it back and asking for it anew takes long.

        No more than it needs now; while there is plenty, what it may come to.
        """
        held = self._pool.held(slot)
        keep = min(held, most if PLENTY * self._pool.spent <= self._pool.budget else need)
        return keep if keep <= room else min(held, need)

    def _target(self, but: int | None = None) -> int | None:
        """An empty slot, or else the one whose prefix was used least recently."""
        if self._free:
            return self._free[0]
        return next((slot for slot in self._kept if slot != but and slot not in self._pinned), None)

    def _claim(self, place: Place, cost: int) -> Place:
        self._room -= cost
        if place.slot in self._kept:
            del self._kept[place.slot]
        else:
            self._free.remove(place.slot)
        return place
