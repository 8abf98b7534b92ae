"""Figures as a table for the terminal."""

import math
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.table import Table

from server.load.figures import Figures, Spread

BUSY = 0.7
"""The share of a core from which on the generator's own speed may show in what it measures."""


def show(console: Console, runs: Sequence[Figures], limits: Mapping[str, float]) -> None:
    """Print what was measured, a row for each level, and what is to be known about it."""
    if len(runs) > 1:
        console.print(_levels(runs, limits))
    else:
        for run in runs:
            console.print(_throughput(run, limits))
            console.print(_latencies(run))
    for run in runs:
        for kind, count in run.errors.items():
            console.print(f"[red]{run.level}: {count} requests failed: {kind}[/red]")
        if run.busy > BUSY:
            console.print(
                f"[yellow]{run.level}: the generator used {run.busy:.0%} of a core: it may have been the limit[/yellow]"
            )


def milliseconds(seconds: float) -> str:
    """A duration for people; a dash where there is none."""
    if math.isnan(seconds):
        return "-"
    return f"{seconds * 1e3:.1f}" if seconds < 1 else f"{seconds * 1e3:,.0f}"


def _throughput(run: Figures, limits: Mapping[str, float]) -> Table:
    table = Table.grid(padding=(0, 2))
    rows = [
        ("load", run.level),
        ("requests", f"{run.completed:,} completed, {sum(run.errors.values())} failed in {run.seconds:.1f} s"),
        ("requests/s", f"{run.requests_per_second:.2f}"),
        ("output tokens/s", f"{run.output_tokens_per_second:,.1f}  ({run.output_tokens:,} tokens)"),
        ("input tokens/s", f"{run.input_tokens_per_second:,.1f}  ({run.input_tokens:,} tokens)"),
    ]
    if limits:
        kept = " and ".join(f"{name} <= {milliseconds(value)} ms" for name, value in limits.items())
        share = run.good / run.completed if run.completed else 0.0
        rows.append(("goodput", f"{run.goodput:.2f} requests/s, {share:.0%} with {kept}"))
    rows.append(("generator", f"{run.busy:.0%} of a core, up to {milliseconds(run.late.max)} ms late"))
    for name, value in rows:
        table.add_row(f"[bold]{name}[/bold]", value)
    return table


def _latencies(run: Figures) -> Table:
    table = Table("ms", *("mean", "p50", "p90", "p95", "p99", "max"), box=None, pad_edge=False)
    for column in table.columns[1:]:
        column.justify = "right"
    for name, spread in _spreads(run):
        values = (spread.mean, spread.p50, spread.p90, spread.p95, spread.p99, spread.max)
        table.add_row(name, *(milliseconds(value) for value in values))
    return table


def _spreads(run: Figures) -> list[tuple[str, Spread]]:
    return [
        ("time to first token", run.ttft),
        ("between tokens (ITL)", run.itl),
        ("per further token", run.tpot),
        ("end to end", run.e2e),
    ]


def _levels(runs: Sequence[Figures], limits: Mapping[str, float]) -> Table:
    names = ("load", "requests/s", "out tok/s", "TTFT p50", "TTFT p99", "ITL p50", "ITL p99", "e2e p50", "e2e p99")
    table = Table(*names, *(["goodput/s"] if limits else []), "failed", box=None, pad_edge=False)
    table.columns[0].no_wrap = True
    for column in table.columns[1:]:
        column.justify = "right"
    for run in runs:
        cells = [run.level, f"{run.requests_per_second:.2f}", f"{run.output_tokens_per_second:,.1f}"]
        for spread in (run.ttft, run.itl, run.e2e):
            cells += [milliseconds(spread.p50), milliseconds(spread.p99)]
        cells += [f"{run.goodput:.2f}"] if limits else []
        table.add_row(*cells, str(sum(run.errors.values())))
    return table
