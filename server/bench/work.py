"""The work of one run and what is seen of it; both cross between processes as JSON. Knows no contender."""

import random
from collections.abc import Sequence

import msgspec

TEXT = """
The miller closed the gate at dusk and counted the sacks a second time, for the river had been low all summer and
every bag of flour would be asked for. A compiler reads a program twice as well: once to learn its names, and once
more to say what each of them means. Heat flows from the warm body to the cold one until nothing is left to move.
On the third floor of the library, between the maps and the almanacs, a student found a letter that nobody had
answered. Bread, salt, water and time: the recipe has four words, and the last one takes the longest to buy.
"""
"""Prompts are made of this text's tokens."""


class Work(msgspec.Struct, frozen=True):
    """Requests that are all sent at once; each generates exactly `new_tokens` tokens, greedily."""

    prompts: list[list[int]]
    new_tokens: int


class Step(msgspec.Struct, frozen=True):
    """One model run: rows it decoded, prompt tokens it prefilled, how long it took in all and inside the model."""

    decode_rows: int
    prefill_rows: int
    seconds: float
    model_seconds: float | None = None


class Run(msgspec.Struct, frozen=True):
    """What was seen of some work.

    Attributes:
        seconds: from the first request's sending to the last one's end, prefill included.
        tokens: generated in all.
        arrivals: for each request, when something of its answer came, in seconds since the beginning.
        steps: the shared steps, where the contender has such and they can be seen.
        rss: most bytes of the process in memory meanwhile; anonymous ones alone in `anonymous`.
    """

    seconds: float
    tokens: int
    arrivals: list[list[float]]
    steps: list[Step] = []
    rss: int = 0
    anonymous: int = 0


def prompts(ids: Sequence[int], count: int, length: int, seed: str) -> list[list[int]]:
    """Different prompts of `length` tokens drawn from `ids`: no two begin alike, so no contender's cache helps it."""
    return [random.Random(f"{seed} {number}").choices(ids, k=length) for number in range(count)]
