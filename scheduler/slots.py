"""Who owns which KV slot, and what those without an owner still hold. Knows nothing of onnxruntime, requests or plans.

A slot is a request's, or holds a reusable prefix that its last owner left, or is empty. What all of them hold
together stays within a budget of tokens; reusable prefixes make way for what is needed now, the least recently used
first.
"""

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass

from scheduler.tokens import TokenIds


@dataclass(frozen=True, slots=True, eq=False)
class Prefix:
    """Tokens at the start of a slot. What is computed of them is bit for bit what anybody would compute.

    Attributes:
        salt: only requests with the same may share it.
    """

    slot: int
    salt: str
    tokens: TokenIds


class SlotPool:
    """A fixed number of KV slots, each owned by at most one request.

    Args:
        count: of slots.
        budget: tokens that all slots may hold together.
    """

    def __init__(self, count: int, budget: int) -> None:
        self.count = count
        self.budget = budget
        self._owners: dict[int, str] = {}
        self._kept: dict[int, Prefix] = {}  # the least recently used first
        self._held: dict[int, int] = {}

    @property
    def used(self) -> int:
        """How many slots have an owner."""
        return len(self._owners)

    @property
    def kept(self) -> Sequence[Prefix]:
        """The reusable prefixes, the least recently used first."""
        return list(self._kept.values())

    @property
    def spent(self) -> int:
        """How many tokens' memory all slots hold."""
        return sum(self._held.values())

    @property
    def reusable(self) -> int:
        """How much of `spent` reusable prefixes hold."""
        return sum(self._held[slot] for slot in self._kept)

    def held(self, slot: int) -> int:
        """How many tokens' memory a slot holds: the most it has had since it was empty."""
        return self._held.get(slot, 0)

    def free(self) -> Sequence[int]:
        """The empty slots, ascending."""
        return [slot for slot in range(self.count) if slot not in self._owners and slot not in self._kept]

    def take(self, slot: int, owner: str) -> None:
        """Give a slot without an owner to a request, with what it holds."""
        assert 0 <= slot < self.count, f"there is no slot {slot}"
        assert slot not in self._owners, f"slot {slot} is {self._owners.get(slot)}'s"
        self._kept.pop(slot, None)
        self._owners[slot] = owner

    def hold(self, slot: int, tokens: int) -> None:
        """Take note that an owned slot holds so many tokens."""
        assert slot in self._owners, f"slot {slot} is nobody's"
        self._held[slot] = max(self.held(slot), tokens)

    def give_back(self, slot: int, owner: str, prefix: Prefix | None = None) -> None:
        """Take a slot back from the request that owns it, empty or with a prefix to be reused."""
        assert self._owners.get(slot) == owner, f"slot {slot} is {self._owners.get(slot)}'s, not {owner}'s"
        del self._owners[slot]
        if prefix is None:
            self._held.pop(slot, None)
        else:
            self._kept[slot] = prefix

    def touch(self, slot: int) -> None:
        """A reusable prefix was used just now."""
        self._kept[slot] = self._kept.pop(slot)

    def forget(self, slot: int, keep: int = 0) -> None:
        """A slot's reusable prefix is gone, and its memory but for so many tokens, which are its next owner's."""
        del self._kept[slot]
        self._held[slot] = min(self._held[slot], keep)
        if not keep:
            del self._held[slot]

    def surplus(self, tokens: int, spared: Collection[int]) -> Sequence[int]:
        """The slots whose prefixes must be forgotten so that `tokens` more fit the budget, but for the spared ones."""
        over, slots = self.spent + tokens - self.budget, []
        for slot in self._kept:
            if over <= 0:
                break
            if slot not in spared:
                slots.append(slot)
                over -= self._held[slot]
        assert over <= 0, f"{over} tokens are beyond the budget of {self.budget}"
        return slots

    def check(self, owners: Mapping[int, str], computed: Mapping[int, int]) -> None:
        """Raise AssertionError where the books differ from what the requests say of their slots, or do not balance."""
        assert self._owners == owners, f"the pool says {self._owners}, the requests say {owners}"
        assert self.spent <= self.budget, f"{self.spent} tokens are held, beyond the budget of {self.budget}"
        assert not self._kept.keys() & self._owners.keys(), "a slot with an owner counts as reusable"
        assert self._held.keys() <= self._kept.keys() | self._owners.keys(), "an empty slot holds something"
        for slot, tokens in computed.items():
            assert self.held(slot) >= tokens, f"slot {slot} holds {tokens} tokens and says {self.held(slot)}"
        for slot, prefix in self._kept.items():
            assert self.held(slot) >= len(prefix.tokens), f"slot {slot} holds less than its prefix"
