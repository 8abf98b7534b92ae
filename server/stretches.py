"""Long work on the event loop, done in short stretches with pauses between: nobody waits for more than one of them.

Work is a generator that yields wherever it may be interrupted, and returns what it made. It stays on the loop, since a
thread that computes in Python would fight with the scheduler's for the interpreter all the while. Knows no work.
"""

import asyncio
from collections.abc import Generator, Iterable, Iterator
from itertools import islice
from time import perf_counter
from typing import TypeVar

T = TypeVar("T")
Work = Generator[None, None, T]

STRETCH = 0.004
"""Seconds that are worked at a time, up to the next place where the work may be interrupted."""

PAUSE = 0.004
"""Seconds that belong to everybody else afterwards."""


async def in_stretches(work: Work[T]) -> T:
    """Do the work, with pauses where it is long; short work is done at once."""
    begun = perf_counter()
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result
        if perf_counter() - begun > STRETCH:
            await asyncio.sleep(PAUSE)
            begun = perf_counter()


def at_once(work: Work[T]) -> T:
    """Do the work without a pause."""
    while True:
        try:
            next(work)
        except StopIteration as done:
            result: T = done.value
            return result


def batches(items: Iterable[T], size: int) -> Iterator[list[T]]:
    """The items by so many, the last ones by what is left."""
    rest = iter(items)
    while batch := list(islice(rest, size)):
        yield batch
