"""A report in the terminal."""

from collections.abc import Iterator

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from server.bench.report import Cell, Report
from server.bench.targets import FURTHER_TOKENS

CALLED = {
    "paceline": "paceline, HTTP",
    "engine": "paceline, engine alone",
    "og-threads": "onnxruntime-genai, a Generator per request",
    "og-batch": "onnxruntime-genai, static batch",
    "openvino": "OpenVINO GenAI, continuous batching",
    "llama-server": "llama.cpp's server, HTTP",
    "vllm": "vLLM, HTTP",
    "onnx-genai": "onnx-genai's server, HTTP",
}


def render(report: Report) -> RenderableType:
    """All tables, one below the other."""
    return Group(*_parts(report))


def _parts(report: Report) -> Iterator[RenderableType]:
    yield _figures(report)
    machine = report.machine
    features = ", ".join(machine.features) or "no integer instructions"
    yield Text(f"{machine.processor}, {report.threads} threads; {features}; paceline used {machine.instruction_set}")
    yield Text("  ".join(f"{name} {version}" for name, version in machine.versions.items()))
    for name, reason in report.left_out.items():
        yield Text(f"{CALLED[name]} was left out: {reason}", style="yellow")
    if report.growth is not None:
        size = report.growth.of(FURTHER_TOKENS) / 1e9
        yield Text(f"Each further request of {FURTHER_TOKENS} tokens takes {size:.3g} GB.")
    if report.targets:
        yield _targets(report)


def _figures(report: Report) -> Table:
    work = f"{report.prompt_tokens} prompt tokens, {report.new_tokens} new ones, all requests at once"
    table = Table(title=f"{report.subject}: {work}", title_justify="left")
    table.add_column("requests", justify="right")
    table.add_column("contender")
    for name in ("seconds", "tokens/s", "TTFT ms", "p99", "ITL ms", "p99", "step ms", "Python ms", "RSS MB", "anon MB"):
        table.add_column(name, justify="right", no_wrap=True)
    before = None
    for cell in report.cells:
        if before is not None and cell.concurrency != before:
            table.add_section()
        table.add_row(*_row(cell, cell.concurrency != before))
        before = cell.concurrency
    return table


def _row(cell: Cell, first: bool) -> Iterator[str]:
    found = cell.median
    yield str(cell.concurrency) if first else ""
    yield CALLED[cell.contender]
    yield f"{found.seconds:.2f}"
    yield f"{found.rate:.1f}"
    for seconds in (found.ttft, found.ttft_p99, found.itl, found.itl_p99, found.step, found.python):
        yield "-" if seconds is None else f"{seconds * 1e3:.1f}"
    for size in (found.rss, found.anonymous):
        yield f"{size / 1e6:.0f}"


def _targets(report: Report) -> Table:
    table = Table(title="Targets", title_justify="left")
    table.add_column("what")
    for name in ("value", "target", "verdict"):
        table.add_column(name, justify="right", no_wrap=True)
    for target in report.targets:
        sign = ">=" if target.least else "<="
        verdict = Text(target.verdict, style="green" if target.met else "red")
        unit = target.unit and f" {target.unit}"
        table.add_row(target.what, f"{target.value:.3g}{unit}", f"{sign} {target.bound:.3g}{unit}", verdict)
    return table
