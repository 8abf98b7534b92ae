"""Runs become figures: rates, percentiles, medians over repeats. Pure."""

from collections.abc import Iterable, Sequence
from itertools import pairwise

import msgspec
import numpy as np

from server.bench.work import Run


class Figures(msgspec.Struct, frozen=True):
    """One contender at one concurrency; seconds and bytes. None is what cannot be seen of this contender.

    Attributes:
        seconds: of the whole run, prefill included.
        rate: generated tokens a second, of all requests together.
        ttft, ttft_p99: time to the first token, over requests.
        itl, itl_p99: time between what arrives, over all requests and gaps.
        step: a step in which every request decodes.
        python: the part of such a step that is spent outside the model.
        rss, anonymous: memory at the most, and of it what no file backs.
    """

    seconds: float
    rate: float
    ttft: float
    ttft_p99: float
    itl: float | None
    itl_p99: float | None
    step: float | None
    python: float | None
    rss: float
    anonymous: float


def figures(run: Run) -> Figures:
    """The figures of one run."""
    first = [arrivals[0] for arrivals in run.arrivals]
    gaps = [later - earlier for arrivals in run.arrivals for earlier, later in pairwise(arrivals)]
    full = [s for s in run.steps if s.decode_rows == len(run.arrivals) and s.prefill_rows == 0]
    outside = [s.seconds - s.model_seconds for s in full if s.model_seconds is not None]
    return Figures(
        seconds=run.seconds,
        rate=run.tokens / run.seconds,
        ttft=float(np.median(first)),
        ttft_p99=float(np.percentile(first, 99)),
        itl=median(gaps),
        itl_p99=float(np.percentile(gaps, 99)) if gaps else None,
        step=median([s.seconds for s in full]),
        python=median(outside),
        rss=run.rss,
        anonymous=run.anonymous,
    )


def median(values: Iterable[float | None]) -> float | None:
    """The median of what is known, None where nothing is."""
    known = [value for value in values if value is not None]
    return float(np.median(known)) if known else None


def over_repeats(repeats: Sequence[Figures]) -> Figures:
    """Each figure's median over repeats; memory's maximum."""
    merged = {name: median(getattr(one, name) for one in repeats) for name in Figures.__struct_fields__}
    peaks = {name: max(getattr(one, name) for one in repeats) for name in ("rss", "anonymous")}
    return msgspec.convert(merged | peaks, Figures)
