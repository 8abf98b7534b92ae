"""How fast the queue moves and whether the scheduler does: moments in, estimates out. Pure; knows no asyncio.

Moments are seconds of one clock, whichever.
"""

from collections import deque
from dataclasses import dataclass

FEW = 8
"""Endings from which on their pace tells how long a wait will be."""

LEAST_STALL = 30.0
"""Seconds without a step after which a scheduler with work may count as stalled."""

STALL = 10.0
"""A step that takes so many times what was expected of the longest counts as stalled."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much is taken.

    Attributes:
        slots: requests that run at once.
        queue: requests that may wait beside them.
        seconds: a longer estimated wait is not begun; infinite takes any.
        stall: seconds without a step before which a scheduler with work never counts as stalled.
    """

    slots: int
    queue: int
    seconds: float
    stall: float = LEAST_STALL

    @property
    def room(self) -> int:
        """Requests in flight at the most."""
        return self.slots + self.queue


class Turnover:
    """How often a request ends while there are any."""

    def __init__(self) -> None:
        self._moments: deque[float] = deque(maxlen=4 * FEW)

    def begin(self, now: float) -> None:
        """There is work again: what lies before says nothing about the pace."""
        self._moments.clear()
        self._moments.append(now)

    def ended(self, now: float) -> None:
        """A request has ended."""
        self._moments.append(now)

    def seconds(self, now: float) -> float:
        """Seconds from one ending to the next; a second where none was seen yet."""
        count = len(self._moments) - 1
        return (now - self._moments[0]) / count if count > 0 else 1.0

    def wait(self, ahead: int, now: float) -> float:
        """The estimated seconds until so many have ended; none where too little was seen to tell."""
        return max(ahead, 0) * self.seconds(now) if len(self._moments) > FEW else 0.0


def stalled(in_flight: int, silence: float, expected: float, least: float = LEAST_STALL) -> bool:
    """Whether a scheduler with requests should have reported a step by now.

    Args:
        in_flight: requests that have not ended.
        silence: seconds since it did.
        expected: seconds that the longest likely step takes.
        least: seconds of silence that are always allowed.
    """
    return in_flight > 0 and silence > max(least, STALL * expected)
