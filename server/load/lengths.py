"""How long prompts and answers are. Knows nothing of what is asked.

A distribution is written as `128`, `64-256`, `normal(200, 50)` or `lognormal(200, 0.7)`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np

_FORM = re.compile(r"(?:(?P<one>\d+)|(?P<low>\d+)-(?P<high>\d+)|(?P<name>\w+)\((?P<a>[\d.]+),\s*(?P<b>[\d.]+)\))")

_NAMED: dict[str, Callable[[np.random.Generator, float, float], float]] = {
    "normal": lambda random, mean, deviation: random.normal(mean, deviation),
    "lognormal": lambda random, median, sigma: random.lognormal(np.log(median), sigma),
    "uniform": lambda random, low, high: random.uniform(low, high + 1),
}


@dataclass(frozen=True, slots=True)
class Lengths:
    """A distribution of numbers of tokens, from 1 up."""

    text: str
    sample: Callable[[np.random.Generator], int]


def lengths(text: str) -> Lengths:
    """Read a distribution; raises ValueError where it is none."""
    match = _FORM.fullmatch(text.strip())
    if match is None:
        raise ValueError(f"{text!r} is no length: write 128, 64-256, normal(200, 50) or lognormal(200, 0.7)")
    if match["one"]:
        return _made(text, lambda _: float(match["one"]))
    if match["low"]:
        low, high = int(match["low"]), int(match["high"])
        if low > high:
            raise ValueError(f"{text!r} ends before it begins")
        return _made(text, lambda random: float(random.integers(low, high + 1)))
    if match["name"] not in _NAMED:
        raise ValueError(f"there is no distribution {match['name']!r}; there are {', '.join(_NAMED)}")
    draw, a, b = _NAMED[match["name"]], float(match["a"]), float(match["b"])
    if match["name"] == "lognormal" and a <= 0:
        raise ValueError("the median of a lognormal distribution is above 0")
    return _made(text, lambda random: draw(random, a, b))


def _made(text: str, draw: Callable[[np.random.Generator], float]) -> Lengths:
    return Lengths(text, lambda random: max(1, int(draw(random))))
