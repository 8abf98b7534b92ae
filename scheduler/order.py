"""Whose turn it is: priorities, fair shares between keys, short prompts first with ageing. Knows no slots, no clocks.

Between keys the one that has been served least goes first: virtual token counters, as in Sheng et al., "Fairness in
Serving Large Language Models", OSDI 2024. Whoever comes after a pause is lifted to the least of those present, so
that nobody saves up. New tokens count double, as there, and prompt tokens found in the cache a tenth.

Among the requests of a key the shortest prompt goes first, a prompt that came `rows` of prefill earlier counting as so
many rows shorter: what comes after the scheduler has prefilled as many rows as a prompt has no longer overtakes it.
"""

from collections import Counter

from scheduler.request import Request

PROMPT_TOKEN, CACHED_TOKEN, NEW_TOKEN = 1.0, 0.1, 2.0


class Shares:
    """How much each key has been served, in tokens by weight."""

    def __init__(self) -> None:
        self._served: dict[str, float] = {}
        self._present = Counter[str]()
        self._last = 0.0  # of the key that left last

    def served(self, key: str) -> float:
        """The counter of a key."""
        return self._served.get(key, 0.0)

    def join(self, key: str) -> None:
        """A request of the key is here."""
        if not self._present[key]:
            least = min((self._served[k] for k in self._present if self._present[k]), default=self._last)
            self._served[key] = max(self.served(key), least)
        self._present[key] += 1

    def leave(self, key: str) -> None:
        """A request of the key has ended."""
        self._present[key] -= 1
        if not self._present[key]:
            del self._present[key]
            self._last = self._served[key]

    def charge(self, key: str, tokens: float) -> None:
        """The key was served so much."""
        self._served[key] = self.served(key) + tokens


class Order:
    """The order of requests, kept while they come, are served and go."""

    def __init__(self) -> None:
        self.shares = Shares()
        self._count = 0
        self._rows = 0  # of prefill so far

    def join(self, r: Request) -> None:
        """A request has come."""
        self._count += 1
        r.number, r.rank = self._count, self._rows + len(r.prompt)
        self.shares.join(r.key)

    def leave(self, r: Request) -> None:
        """A request has ended."""
        self.shares.leave(r.key)

    def turn(self, r: Request) -> tuple[float, ...]:
        """The lower goes first; those that had to make way before those that are new."""
        return r.priority, not r.preempted, self.shares.served(r.key), r.rank, r.number

    def started(self, r: Request) -> None:
        """A request has a slot; what it needs no computing for costs a little."""
        if not r.preempted:
            self.shares.charge(r.key, CACHED_TOKEN * r.cached)

    def computed(self, r: Request, count: int, *, prefill: bool, new: bool) -> None:
        """So many rows of a request were computed; what is computed anew after it had to make way costs nothing."""
        if prefill:
            self._rows += count
        if prefill and not r.preempted:
            self.shares.charge(r.key, PROMPT_TOKEN * count)
        elif new:
            self.shares.charge(r.key, NEW_TOKEN)
