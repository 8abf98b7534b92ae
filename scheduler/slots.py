"""Who owns which KV slot. Knows nothing of onnxruntime, requests or plans."""

from collections.abc import Sequence


class SlotPool:
    """A fixed number of KV slots, each owned by at most one request."""

    def __init__(self, count: int) -> None:
        self.count = count
        self._owners: dict[int, str] = {}

    @property
    def used(self) -> int:
        """How many slots have an owner."""
        return len(self._owners)

    def free(self) -> Sequence[int]:
        """The slots without an owner, ascending: low slots first keeps the slots in use close together."""
        return [slot for slot in range(self.count) if slot not in self._owners]

    def take(self, slot: int, owner: str) -> None:
        """Give a free slot to a request."""
        assert 0 <= slot < self.count, f"there is no slot {slot}"
        assert slot not in self._owners, f"slot {slot} is {self._owners.get(slot)}'s"
        self._owners[slot] = owner

    def give_back(self, slot: int, owner: str) -> None:
        """Take a slot back from the request that owns it."""
        assert self._owners.get(slot) == owner, f"slot {slot} is {self._owners.get(slot)}'s, not {owner}'s"
        del self._owners[slot]

    def check(self, owners: dict[int, str]) -> None:
        """Raise AssertionError where the books differ from what the requests say of their slots."""
        assert self._owners == owners, f"the pool says {self._owners}, the requests say {owners}"
