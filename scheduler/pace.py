"""How long a step takes, learned from the steps before it: least squares over a few numbers of a step.

A step costs something for the weights, for each row that decodes, for each row that is prefilled, and for the cached
tokens that each of them attends to:

    seconds = a + b decode rows + c prefill rows + d decode tokens + e prefill rows x tokens before them

Steps are weighed by their own length, since it is the relative error that counts, and forgotten slowly, since a
machine's speed changes with its company. No part is negative: the minimum within bounds is found by coordinate
descent from the last one.

A promise has to hold for the worst step, not for the mean one. So what is planned leaves room for the largest excess
over the estimate of late: it follows at once where a step takes longer, and is forgotten slowly where none does. Plain
numbers in, plain numbers out: knows neither requests nor clocks.
"""

import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from scheduler.plan import Pending, Slice

FORGETTING = 0.99
"""The weight of a step, a step later: the last hundred count most."""

PRIOR = (0.01, 0.001, 0.001, 1e-7, 1e-7)
"""A guess at a, b, c, d, e in seconds, of a small model on a few cores; a handful of steps replaces it."""

TRUST = 1e-4
"""The weight of the guess, in steps: it decides only about what no step has told of."""

LEAST_EXCESS, MOST_EXCESS = 1.3, 2.0
"""How many times its estimate a step is expected to take at the worst, whatever was seen."""

CALMING = 0.99
"""What is left of the excess that is expected, a step with prefill later: half of it after some seventy."""

LEAST = 1e-3
"""No part of a step is cheaper than this much of its guess, whatever a few noisy steps say."""

SETTLING = 16
"""Steps whose excess says nothing: it is over a guess, not over what was measured."""

SWEEPS = 4
"""Rounds of the descent after each step; what is left is done after the next one."""

MOST_SECONDS, LEAST_SECONDS = 1e4, 1e-6
"""A time beyond these is a clock's fault."""


@dataclass(frozen=True, slots=True)
class Load:
    """What a step computes.

    Attributes:
        decode_rows: requests that decode.
        decode_tokens: what they have in the cache, added up.
        prefill_rows: what is computed beside them.
        prefill_pairs: for each of them the tokens before its chunk, added up.
    """

    decode_rows: int = 0
    decode_tokens: int = 0
    prefill_rows: int = 0
    prefill_pairs: int = 0

    @property
    def numbers(self) -> tuple[int, ...]:
        """The factors of a, b, c, d, e."""
        return 1, self.decode_rows, self.prefill_rows, self.decode_tokens, self.prefill_pairs


def load_of(slices: Iterable[Slice]) -> Load:
    """What a plan computes."""
    slices = list(slices)
    decode, prefill = [s for s in slices if s.decodes], [s for s in slices if not s.decodes]
    return Load(
        decode_rows=len(decode),
        decode_tokens=sum(s.start for s in decode),
        prefill_rows=sum(s.count for s in prefill),
        prefill_pairs=sum(s.count * s.start for s in prefill),
    )


@dataclass(slots=True)
class Pace:
    """The estimate, in units of the guess, and the sums that it is made from."""

    _estimate: list[float] = field(default_factory=lambda: [1.0] * len(PRIOR))
    _squares: list[list[float]] = field(default_factory=lambda: [[0.0] * len(PRIOR) for _ in PRIOR])
    _products: list[float] = field(default_factory=lambda: [0.0] * len(PRIOR))
    _excess: float = LEAST_EXCESS
    _steps: int = 0

    def learn(self, load: Load, seconds: float) -> None:
        """Take note of how long a step took."""
        seconds = min(max(seconds, LEAST_SECONDS), MOST_SECONDS)
        self._steps += 1
        if load.prefill_rows and self._steps > SETTLING:
            calmed = 1 + (self._excess - 1) * CALMING
            self._excess = min(max(seconds / self.seconds(load), calmed, LEAST_EXCESS), MOST_EXCESS)
        factors = [number * guess / seconds for number, guess in zip(load.numbers, PRIOR, strict=True)]
        for i, factor in enumerate(factors):
            self._products[i] = FORGETTING * self._products[i] + factor
            self._squares[i] = [FORGETTING * s + factor * f for s, f in zip(self._squares[i], factors, strict=True)]
        for _ in range(SWEEPS):
            for i in range(len(PRIOR)):
                self._improve(i)

    def seconds(self, load: Load) -> float:
        """How long a step will take."""
        return sum(number * part for number, part in zip(load.numbers, self._parts, strict=True))

    @property
    def excess(self) -> float:
        """How many times its estimate a step with prefill may take."""
        return self._excess

    def rows_beside(self, running: Sequence[Pending], target: float) -> int:
        """How many rows of prefill fit a step beside those that decode; as many as anybody likes where nobody does."""
        decoding = [p for p in running if p.decodes]
        if not decoding or target == math.inf:
            return sys.maxsize
        before = max((p.computed for p in running if not p.decodes), default=0)
        load = Load(len(decoding), sum(p.computed for p in decoding))
        return self.prefill_rows(load, before, target / self._excess)

    def prefill_rows(self, load: Load, before: int, target: float) -> int:
        """How many rows of a chunk fit a step beside a load so that it takes `target` seconds; may be negative.

        Args:
            load: what is in the step anyhow.
            before: tokens before the chunk.
            target: in seconds.
        """
        parts = self._parts
        return int((target - self.seconds(load)) // (parts[2] + before * parts[4]))

    @property
    def _parts(self) -> list[float]:
        return [estimate * guess for estimate, guess in zip(self._estimate, PRIOR, strict=True)]

    def _improve(self, i: int) -> None:
        """Set one number of the estimate to its best, the others being as they are."""
        row = self._squares[i]
        others = sum(s * e for s, e in zip(row, self._estimate, strict=True)) - row[i] * self._estimate[i]
        best = (self._products[i] + TRUST - others) / (row[i] + TRUST)
        self._estimate[i] = max(best, LEAST)
