"""Figures as one HTML file with its plots, which needs nothing else and fetches nothing."""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from html import escape

import numpy as np

from server.load.drive import Run
from server.load.figures import Figures, gaps
from server.load.svg import Series, chart
from server.load.table import milliseconds

STYLE = """
:root{color-scheme:light dark;--paper:#fcfcfa;--ink:#1c2024;--soft:#687076;--rule:#e3e3df;--accent:#0b6bcb;
--bad:#c0362c}
@media(prefers-color-scheme:dark){:root{--paper:#14171a;--ink:#e8eaec;--soft:#98a1a8;--rule:#2c3237;--accent:#6cb2ff;
--bad:#ff8a80}}
*{box-sizing:border-box}
body{margin:0 auto;max-width:1340px;padding:2.5rem 1.25rem 4rem;background:var(--paper);color:var(--ink);
font:15px/1.5 system-ui,sans-serif}
h1{font-size:1.6rem;margin:0}h2{font-size:1.05rem;margin:2.5rem 0 .5rem}
.soft,figcaption,text{color:var(--soft);fill:var(--soft)}.bad{color:var(--bad)}
dl{display:grid;grid-template-columns:max-content 1fr;gap:.15rem 1.5rem;margin:1.5rem 0}
dt{color:var(--soft)}dd{margin:0}
.scroll{overflow-x:auto}table{border-collapse:collapse;font-variant-numeric:tabular-nums;white-space:nowrap}
th,td{padding:.4rem .9rem .4rem 0;text-align:right;border-bottom:1px solid var(--rule)}
th{font-weight:500;color:var(--soft);font-size:.85rem}
th:first-child,td:first-child{text-align:left}
.plots{display:grid;grid-template-columns:repeat(auto-fit,minmax(min(100%,480px),1fr));gap:1.5rem}
figure{margin:0}figcaption{font-size:.9rem;margin-bottom:.35rem}
svg{width:100%;height:auto;font:12px system-ui,sans-serif}
.grid{stroke:var(--rule)}.tick{stroke:var(--soft)}
.line{fill:none;stroke-width:2;stroke-linejoin:round}
.line{stroke:color-mix(in oklab,var(--accent) var(--s),var(--paper))}
circle,i{fill:color-mix(in oklab,var(--accent) var(--s),var(--paper))}
.legend{display:flex;flex-wrap:wrap;gap:.2rem 1rem;font-size:.85rem;color:var(--soft)}
.legend i{display:inline-block;width:1.1em;height:3px;margin-right:.4em;vertical-align:middle;
background:color-mix(in oklab,var(--accent) var(--s),var(--paper))}
"""
CELLS = ("load", "completed", "failed", "requests/s", "good/s", "out tok/s", "in tok/s")
SPREADS = ("ttft", "itl", "tpot", "e2e")


def page(setting: Mapping[str, str], runs: Sequence[Run], found: Sequence[Figures]) -> str:
    """The report; `setting` says what was measured, in words."""
    facts = "".join(f"<dt>{escape(name)}</dt><dd>{escape(value)}</dd>" for name, value in setting.items())
    when = datetime.now(UTC).strftime("%Y-%m-%d %H:%M UTC")
    parts = [f"<h1>Load test</h1><div class=soft>paceline load, {when}</div><dl>{facts}</dl>"]
    parts += ["<h2>Throughput</h2>", _throughput(found), _errors(found)]
    parts += ["<h2>Latencies in ms</h2>", _latencies(found)]
    if len(found) > 1:
        parts.append(f"<h2>As the load grows</h2><div class=plots>{_growth(found)}</div>")
    parts.append(f"<h2>Distributions</h2><div class=plots>{_distributions(runs)}</div>")
    parts.append(f"<h2>Over time</h2><div class=plots>{_timelines(runs)}</div>")
    return (
        "<!doctype html><html lang=en><meta charset=utf-8><meta name=viewport content='width=device-width'>"
        f"<title>Load test</title><style>{STYLE}</style><body>{''.join(parts)}</body></html>\n"
    )


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    top = "".join(f"<th scope=col>{escape(cell)}</th>" for cell in head)
    body = "".join("<tr>" + "".join(f"<td>{escape(cell)}</td>" for cell in row) + "</tr>" for row in rows)
    return f"<div class=scroll><table><thead><tr>{top}</tr></thead><tbody>{body}</tbody></table></div>"


def _throughput(found: Sequence[Figures]) -> str:
    rows = [
        (
            f.level,
            f"{f.completed:,}",
            f"{sum(f.errors.values()):,}",
            f"{f.requests_per_second:.2f}",
            f"{f.goodput:.2f}",
            f"{f.output_tokens_per_second:,.1f}",
            f"{f.input_tokens_per_second:,.1f}",
        )
        for f in found
    ]
    return _table(CELLS, rows)


def _latencies(found: Sequence[Figures]) -> str:
    rows = []
    for f in found:
        for name in SPREADS:
            s = getattr(f, name)
            rows.append((f.level, name.upper(), *map(milliseconds, (s.mean, s.p50, s.p90, s.p95, s.p99, s.max))))
    return _table(("load", "", "mean", "p50", "p90", "p95", "p99", "max"), rows)


def _errors(found: Sequence[Figures]) -> str:
    lines = [f"{f.level}: {count} failed: {kind}" for f in found for kind, count in f.errors.items()]
    return "".join(f"<p class=bad>{escape(line)}</p>" for line in lines)


def _growth(found: Sequence[Figures]) -> str:
    """Latency over throughput, a dot for each level."""
    plots = []
    for name, title in (("ttft", "Time to first token"), ("itl", "Between tokens"), ("e2e", "End to end")):
        series = [
            Series(
                rank,
                [(f.output_tokens_per_second, getattr(getattr(f, name), rank) * 1e3) for f in found if f.completed],
                strength,
                dots=True,
            )
            for rank, strength in (("p50", 0.5), ("p99", 1.0))
        ]
        plots.append(chart(title, ("output tokens/s", "ms"), series))
    return "".join(plots)


def _distributions(runs: Sequence[Run]) -> str:
    """The share of values below each value."""
    wanted = (
        ("Time to first token", lambda s: [s.times[0] - s.due] if s.times else []),
        ("Between tokens", gaps),
        ("End to end", lambda s: [s.ended - s.due]),
    )
    plots = []
    for title, values in wanted:
        series = [
            Series(str(run.level), _cumulative([v for s in run.samples if not s.error for v in values(s)]), strength)
            for run, strength in _ordered(runs)
        ]
        plots.append(chart(title, ("ms", "% not above"), series, log_x=True))
    return "".join(plots)


def _timelines(runs: Sequence[Run]) -> str:
    """Pieces of text a second, by the second."""
    series = []
    for run, strength in _ordered(runs):
        moments = [moment - run.begun for s in run.samples for moment in s.times]
        width = max((run.ended - run.begun) / 120, 0.25)
        counts = np.bincount((np.array(moments, np.float64) / width).astype(int))
        series.append(Series(str(run.level), [((i + 0.5) * width, n / width) for i, n in enumerate(counts)], strength))
    return chart("Pieces of text a second", ("seconds", "1/s"), series)


def _ordered(runs: Sequence[Run]) -> list[tuple[Run, float]]:
    return [(run, (i + 1) / len(runs) * 0.7 + 0.3) for i, run in enumerate(runs)]


def _cumulative(values: Sequence[float], points: int = 200) -> list[tuple[float, float]]:
    if not values:
        return []
    shares = np.linspace(0, 100, min(points, max(len(values), 2)))
    return [(float(v) * 1e3, float(share)) for v, share in zip(np.percentile(values, shares), shares, strict=True)]
