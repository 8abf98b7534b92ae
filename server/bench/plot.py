"""A report as a picture: one panel per figure over the number of requests, written as SVG without a library."""

import math
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from html import escape

from server.bench.figures import Figures
from server.bench.report import Report
from server.bench.table import CALLED

COLOURS = {
    "paceline": "#c2410c",
    "engine": "#f59e0b",
    "og-threads": "#64748b",
    "og-batch": "#0e7490",
    "openvino": "#7c3aed",
    "llama-server": "#15803d",
    "vllm": "#be185d",
    "onnx-genai": "#1d4ed8",
}
PANELS: tuple[tuple[str, Callable[[Figures], float | None]], ...] = (
    ("tokens/s, all requests together", lambda f: f.rate),
    ("time to first token, ms (median)", lambda f: f.ttft * 1e3),
    ("inter-token latency, ms (median)", lambda f: None if f.itl is None else f.itl * 1e3),
    ("decode step, ms (median)", lambda f: None if f.step is None else f.step * 1e3),
    ("peak resident memory, MB", lambda f: f.rss / 1e6),
)
WIDTH, HEIGHT, MARGIN, TOP, GAP = 300, 190, 46, 108, 70
STYLE = "font-family: system-ui, sans-serif; font-size: 11px; fill: #334155"

Points = list[tuple[int, float]]


@dataclass(frozen=True, slots=True)
class Panel:
    """One panel's place and scales; x is logarithmic, y begins at 0."""

    left: float
    top: float
    counts: list[int]
    step: float
    most: float

    def x(self, count: int) -> float:
        """Where a number of requests lies."""
        low, high = math.log2(self.counts[0]), math.log2(self.counts[-1])
        return self.left + (WIDTH * (math.log2(count) - low) / (high - low) if high > low else WIDTH / 2)

    def y(self, value: float) -> float:
        """Where a value lies."""
        return self.top + HEIGHT * (1 - value / self.most)


def svg(report: Report) -> str:
    """The picture: two columns of panels below a title and a legend."""
    names = list(dict.fromkeys(cell.contender for cell in report.cells))
    rows = -(-len(PANELS) // 2)
    width, height = 2 * (WIDTH + 2 * MARGIN), TOP + rows * (HEIGHT + GAP)
    parts = [
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {width} {height}" style="{STYLE}">',
        f'<rect width="{width}" height="{height}" fill="#ffffff"/>',
        *_head(report),
        *_legend(names, rows),
    ]
    for number, (title, figure) in enumerate(PANELS):
        left = MARGIN + number % 2 * (WIDTH + 2 * MARGIN)
        top = TOP + number // 2 * (HEIGHT + GAP)
        parts += _panel(title, {name: _points(report, name, figure) for name in names}, left, top)
    return "\n".join([*parts, "</svg>", ""])


def ticks(most: float) -> tuple[float, int]:
    """A round distance between lines, and how many of them reach `most`; 2 to 5."""
    if most <= 0:
        return 1.0, 2
    base = 10.0 ** math.floor(math.log10(most))
    step = next(base * part for part in (0.2, 0.5, 1.0, 2.0) if most <= base * part * 5)
    return step, math.ceil(most / step - 1e-9)


def _points(report: Report, name: str, figure: Callable[[Figures], float | None]) -> Points:
    found = [(cell.concurrency, figure(cell.median)) for cell in report.cells if cell.contender == name]
    return [(count, value) for count, value in found if value is not None]


def _head(report: Report) -> Iterator[str]:
    work = f"{report.prompt_tokens} prompt tokens, {report.new_tokens} new ones, all requests at once"
    machine = f"{report.machine.processor}, {report.threads} threads ({', '.join(report.machine.features)})"
    yield f'<text x="{MARGIN}" y="30" font-size="17" font-weight="600">{escape(report.subject)}</text>'
    yield f'<text x="{MARGIN}" y="48">{escape(work)}</text>'
    yield f'<text x="{MARGIN}" y="63" fill="#64748b">{escape(machine)}; {report.created[:10]}</text>'


def _legend(names: Iterable[str], rows: int) -> Iterator[str]:
    """In the place that an odd number of panels leaves empty."""
    left, top = 2 * MARGIN + WIDTH + MARGIN, TOP + (rows - 1) * (HEIGHT + GAP) + 30
    for number, name in enumerate(names):
        y = top + 24 * number
        yield f'<line x1="{left}" x2="{left + 26}" y1="{y}" y2="{y}" stroke="{COLOURS[name]}" stroke-width="2.5"/>'
        yield f'<circle cx="{left + 13}" cy="{y}" r="3.5" fill="{COLOURS[name]}"/>'
        yield f'<text x="{left + 36}" y="{y + 4}">{escape(CALLED[name])}</text>'


def _panel(title: str, lines: dict[str, Points], left: float, top: float) -> Iterator[str]:
    values = [value for points in lines.values() for _, value in points]
    counts = sorted({count for points in lines.values() for count, _ in points})
    if not counts:
        return
    step, number = ticks(max(values))
    panel = Panel(left, top, counts, step, step * number)
    yield f'<text x="{left}" y="{top - 12}" font-size="12" font-weight="600">{escape(title)}</text>'
    for line in range(number + 1):
        y = panel.y(line * step)
        colour = "#e2e8f0" if line else "#94a3b8"
        yield f'<line x1="{left}" x2="{left + WIDTH}" y1="{y:.1f}" y2="{y:.1f}" stroke="{colour}"/>'
        yield f'<text x="{left - 6}" y="{y + 4:.1f}" text-anchor="end">{line * step:g}</text>'
    for count in counts:
        yield f'<text x="{panel.x(count):.1f}" y="{top + HEIGHT + 16}" text-anchor="middle">{count}</text>'
    right, below = left + WIDTH, top + HEIGHT + 31
    yield f'<text x="{right}" y="{below}" text-anchor="end" fill="#64748b">requests at once</text>'
    for name, points in reversed(lines.items()):
        yield from _line(panel, COLOURS[name], points)


def _line(panel: Panel, colour: str, points: Points) -> Iterator[str]:
    places = [(panel.x(count), panel.y(value)) for count, value in points]
    path = " ".join(f"{x:.1f},{y:.1f}" for x, y in places)
    yield f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2.5" stroke-linejoin="round"/>'
    for x, y in places:
        yield f'<circle cx="{x:.1f}" cy="{y:.1f}" r="3.5" fill="{colour}" stroke="#ffffff"/>'
