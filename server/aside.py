"""Where work on what a client sent is done: at once, or in a thread where it may be long. Knows no work."""

from collections.abc import Callable
from typing import TypeVar

from anyio import CapacityLimiter, to_thread

T = TypeVar("T")

LITTLE = 2**15
"""Bytes whose work is done sooner than a thread is woken."""

MUCH = 2**20
"""Bytes from which on one piece of work is done at a time: several would take the processor from the model."""


class Aside:
    """Does work, and lets the event loop go on meanwhile."""

    def __init__(self) -> None:
        self._turn = CapacityLimiter(1)

    async def run(self, size: int, work: Callable[[], T]) -> T:
        """Do work on so many bytes, in a thread unless they are few."""
        return work() if size <= LITTLE else await self.in_thread(size, work)

    async def in_thread(self, size: int, work: Callable[[], T]) -> T:
        """Do work on so many bytes in a thread."""
        return await to_thread.run_sync(work, limiter=self._turn if size >= MUCH else None)
