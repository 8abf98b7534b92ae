"""Samples to numbers, pure: percentiles, throughput, goodput, errors by kind. Seconds throughout."""

from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Self

import numpy as np

from server.load.connection import Sample
from server.load.drive import Run

PERCENTILES = (50, 90, 95, 99)
LIMITS = ("ttft", "itl", "tpot", "e2e")
"""What goodput may ask for; `itl` is the longest silence within a request, `tpot` its mean time per further token."""


@dataclass(frozen=True, slots=True)
class Spread:
    """A distribution in numbers; NaN where nothing was seen."""

    mean: float
    p50: float
    p90: float
    p95: float
    p99: float
    max: float
    count: int

    @classmethod
    def of(cls, values: Sequence[float]) -> Self:
        """The spread of some values."""
        if not len(values):
            nan = float("nan")
            return cls(nan, nan, nan, nan, nan, nan, 0)
        p50, p90, p95, p99 = (float(rank) for rank in np.percentile(values, PERCENTILES))
        return cls(float(np.mean(values)), p50, p90, p95, p99, float(np.max(values)), len(values))


@dataclass(frozen=True, slots=True)
class Figures:
    """One run in numbers.

    Attributes:
        level: how much load, in words.
        seconds: from the first request to the end of the last.
        completed: requests that ended well; all spreads are theirs.
        requests_per_second: of these.
        good: how many of these kept all limits; equal to completed without limits.
        input_tokens_per_second: as the server counted them.
        output_tokens_per_second: likewise.
        errors: how many of each kind.
        ttft: from due to the first text.
        itl: between one text and the next, of all requests together.
        tpot: (last - first text) / (tokens - 1), one of each request.
        e2e: from due to the end of the stream.
        late: from due to sent: the generator's own delay.
        busy: the generator's share of a core.
    """

    level: str
    concurrency: int | None
    rate: float | None
    seconds: float
    completed: int
    requests_per_second: float
    good: int
    goodput: float
    input_tokens: int
    output_tokens: int
    input_tokens_per_second: float
    output_tokens_per_second: float
    errors: dict[str, int]
    ttft: Spread
    itl: Spread
    tpot: Spread
    e2e: Spread
    late: Spread
    busy: float


def figures(run: Run, limits: Mapping[str, float]) -> Figures:
    """The figures of a run; `limits` are upper bounds of what LIMITS names."""
    seconds = max(run.ended - run.begun, 1e-9)
    done = [sample for sample in run.samples if not sample.error]
    good = sum(keeps(sample, limits) for sample in done)
    prompt, new = sum(s.prompt_tokens for s in done), sum(s.new_tokens for s in done)
    return Figures(
        level=str(run.level),
        concurrency=run.level.concurrency,
        rate=run.level.rate,
        seconds=seconds,
        completed=len(done),
        requests_per_second=len(done) / seconds,
        good=good,
        goodput=good / seconds,
        input_tokens=prompt,
        output_tokens=new,
        input_tokens_per_second=prompt / seconds,
        output_tokens_per_second=new / seconds,
        errors=dict(Counter(sample.error for sample in run.samples if sample.error).most_common()),
        ttft=Spread.of([s.times[0] - s.due for s in done if s.times]),
        itl=Spread.of([gap for s in done for gap in gaps(s)]),
        tpot=Spread.of([t for s in done if (t := tpot(s)) is not None]),
        e2e=Spread.of([s.ended - s.due for s in done]),
        late=Spread.of([s.sent - s.due for s in done]),
        busy=run.busy,
    )


def gaps(sample: Sample) -> list[float]:
    """The silences between its pieces of text."""
    return [later - earlier for earlier, later in zip(sample.times, sample.times[1:], strict=False)]


def tpot(sample: Sample) -> float | None:
    """Its mean time per token after the first; None with fewer than two."""
    if sample.new_tokens < 2 or not sample.times:
        return None
    return (sample.times[-1] - sample.times[0]) / (sample.new_tokens - 1)


def keeps(sample: Sample, limits: Mapping[str, float]) -> bool:
    """Whether a request that ended well kept every limit."""
    seen = {
        "ttft": sample.times[0] - sample.due if sample.times else None,
        "itl": max(gaps(sample), default=None),
        "tpot": tpot(sample),
        "e2e": sample.ended - sample.due,
    }
    return all((value := seen[name]) is None or value <= limit for name, limit in limits.items())


def limit(text: str) -> tuple[str, float]:
    """Read a limit such as `ttft=0.5` or `itl=80ms`; raises ValueError where it is none."""
    name, _, value = text.partition("=")
    scale = 1e-3 if value.endswith("ms") else 1.0
    if name not in LIMITS or not value:
        raise ValueError(f"{text!r} is no limit: write one of {', '.join(LIMITS)}, as in ttft=0.5 or itl=80ms")
    return name, float(value.removesuffix("ms").removesuffix("s")) * scale
