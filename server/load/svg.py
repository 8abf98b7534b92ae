"""Line charts as inline SVG, coloured by the page's style sheet. Knows no load test."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from html import escape

WIDTH, HEIGHT = 620, 280
LEFT, RIGHT, TOP, BOTTOM = 56, 16, 14, 44

Point = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Series:
    """One line.

    Attributes:
        strength: how much of the accent colour it has, 0 to 1: series that have an order show it.
        dots: whether each point is marked, and named by the pointer.
    """

    label: str
    points: Sequence[Point]
    strength: float = 1.0
    dots: bool = False


@dataclass(frozen=True, slots=True)
class Scale:
    """Values to pixels, along one axis."""

    low: float
    high: float
    start: float
    end: float
    log: bool = False

    def __call__(self, value: float) -> float:
        """Where a value lies."""
        low, high, value = (math.log10(v) if self.log else v for v in (self.low, self.high, max(value, self.low)))
        return self.start + (value - low) / (high - low) * (self.end - self.start)

    def ticks(self) -> list[float]:
        """Round values along the axis."""
        if self.log:
            exponents = range(math.floor(math.log10(self.low)), math.ceil(math.log10(self.high)) + 1)
            found = [m * 10.0**e for e in exponents for m in (1, 2, 5)]
            found = [value for value in found if self.low <= value <= self.high]
            return found if len(found) <= 9 else [value for value in found if f"{value:e}".startswith("1")]
        step = round_step((self.high - self.low) / 5)
        first = math.ceil(self.low / step - 1e-9)
        return [n * step for n in range(first, math.floor(self.high / step + 1e-9) + 1)]


def round_step(rough: float) -> float:
    """The least of 1, 2, 5 times a power of ten that is not below `rough`."""
    power = 10.0 ** math.floor(math.log10(max(rough, 1e-9)))
    return next(m * power for m in (1, 2, 5, 10) if m * power >= rough * (1 - 1e-9))


def chart(title: str, axes: tuple[str, str], series: Sequence[Series], *, log_x: bool = False) -> str:
    """A figure with its caption; `axes` are the names of x and y. Without points it says so."""
    points = [point for line in series for point in line.points]
    caption = f"<figcaption>{escape(title)}</figcaption>"
    if not points:
        return f"<figure>{caption}<p class=none>Nothing was measured.</p></figure>"
    x, y = _scales(points, log_x)
    label = f"{title}: {axes[1]} over {axes[0]}"
    body = [_grid(x, y, axes), *(_line(line, x, y) for line in series)]
    legend = "".join(_key(line) for line in series) if len(series) > 1 else ""
    return (
        f"<figure>{caption}<svg viewBox='0 0 {WIDTH} {HEIGHT}' role=img aria-label='{escape(label, quote=True)}'>"
        f"{''.join(body)}</svg><div class=legend>{legend}</div></figure>"
    )


def number(value: float) -> str:
    """A tick's number, as short as it can be."""
    if value >= 1000:
        return f"{value / 1000:g}k"
    return f"{value:.4g}"


def _scales(points: Sequence[Point], log_x: bool) -> tuple[Scale, Scale]:
    xs, ys = [p[0] for p in points], [p[1] for p in points]
    low = max(min(xs), 1e-3) if log_x else 0.0
    high = max(*xs, low * 1.5) if log_x else max(*xs, 1e-9)
    top = max(*ys, 1e-9)
    step = round_step(top / 5)
    y = Scale(0.0, math.ceil(top / step - 1e-9) * step, HEIGHT - BOTTOM, TOP)
    return Scale(low, high, LEFT, WIDTH - RIGHT, log=log_x), y


def _grid(x: Scale, y: Scale, axes: tuple[str, str]) -> str:
    parts = []
    for value in y.ticks():
        at = y(value)
        parts.append(f"<path class=grid d='M{LEFT} {at:.1f}H{WIDTH - RIGHT}'/>")
        parts.append(f"<text x={LEFT - 8} y={at + 4:.1f} text-anchor=end>{number(value)}</text>")
    for value in x.ticks():
        parts.append(f"<path class=tick d='M{x(value):.1f} {HEIGHT - BOTTOM}v5'/>")
        parts.append(f"<text x={x(value):.1f} y={HEIGHT - BOTTOM + 19} text-anchor=middle>{number(value)}</text>")
    parts.append(f"<text class=axis x={WIDTH - RIGHT} y={HEIGHT - 6} text-anchor=end>{escape(axes[0])}</text>")
    parts.append(f"<text class=axis x={LEFT} y={HEIGHT - 6}>{escape(axes[1])} ↑</text>")
    return "".join(parts)


def _line(line: Series, x: Scale, y: Scale) -> str:
    path = "L".join(f"{x(a):.1f} {y(b):.1f}" for a, b in line.points)
    dots = ""
    if line.dots:
        dots = "".join(
            f"<circle cx={x(a):.1f} cy={y(b):.1f} r=4><title>{escape(line.label)}: {number(a)}, {number(b)}</title>"
            "</circle>"
            for a, b in line.points
        )
    return f"<g style='--s:{line.strength:.0%}'><path class=line d='M{path}'/>{dots}</g>"


def _key(line: Series) -> str:
    return f"<span style='--s:{line.strength:.0%}'><i></i>{escape(line.label)}</span>"
