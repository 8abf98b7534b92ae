"""What `paceline bench --kernels` found, as one value and as a table."""

from pathlib import Path

import msgspec
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from server.bench.kernels.cases import Size, cases
from server.bench.kernels.measure import Found, Limits, limits, measured
from server.bench.machine import Machine, machine

READ_SIZE = 512 * 2**20
TIMES = 2_000_000


class Kernels(msgspec.Struct, frozen=True):
    """Every operator, and the machine."""

    machine: Machine
    threads: int
    limits: Limits
    found: list[Found]


def measure(rows: tuple[int, ...], threads: int, repeats: int, size: Size) -> Kernels:
    """Measure with the instruction set that is selected."""
    most = limits(threads, READ_SIZE, TIMES, repeats)
    return Kernels(machine(), threads, most, list(measured(cases(rows, size), threads, repeats)))


def write(kernels: Kernels, path: Path) -> None:
    """Write all of it as JSON."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(kernels), indent=2) + b"\n")


def render(kernels: Kernels) -> RenderableType:
    """Figures beside the part of the machine's own that they are."""
    most, here = kernels.limits, kernels.machine
    table = Table(title=f"{here.processor}, {kernels.threads} threads, {here.instruction_set}", title_justify="left")
    table.add_column("operator")
    table.add_column("kind")
    for name in ("rows", "ms", "GB/s", "of reading", "GOPS", "of multiplying"):
        table.add_column(name, justify="right", no_wrap=True)
    for found in kernels.found:
        figures = [f"{found.seconds * 1e3:.3f}", *_part(found.read, most.read)]
        figures += _part(found.operations, most.operations) if found.operations else ["-", "-"]
        table.add_row(found.operator, found.kind, str(found.rows), *figures)
    alone = (
        f"Reading alone {most.read / 1e9:.1f} GB/s, multiplying bytes in registers {most.operations / 1e9:.0f} GOPS."
    )
    return Group(table, Text(alone))


def _part(value: float, most: float) -> list[str]:
    return [f"{value / 1e9:.1f}", f"{value / most:.0%}"]
