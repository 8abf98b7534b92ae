"""What a benchmark found, as one value: the table, the plot and the JSON file are made of it."""

from pathlib import Path

import msgspec

from server.bench.figures import Figures
from server.bench.growth import Growth
from server.bench.machine import Machine
from server.bench.targets import Target


class Cell(msgspec.Struct, frozen=True):
    """One contender at one concurrency: medians over the repeats, and each repeat."""

    contender: str
    concurrency: int
    median: Figures
    repeats: list[Figures]


class Report(msgspec.Struct, frozen=True):
    """A whole benchmark.

    Attributes:
        subject: the model's or the shape's name.
        created: UTC in ISO form.
        threads: that every contender's model run had.
        left_out: peers that were not measured, and why.
        growth: memory of further requests, of a shape alone.
    """

    subject: str
    created: str
    machine: Machine
    threads: int
    prompt_tokens: int
    new_tokens: int
    cells: list[Cell]
    left_out: dict[str, str]
    targets: list[Target] = []
    growth: Growth | None = None

    def medians(self) -> dict[tuple[str, int], Figures]:
        """The figures by contender and concurrency."""
        return {(cell.contender, cell.concurrency): cell.median for cell in self.cells}


def write_json(report: Report, path: Path) -> None:
    """Write all of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(msgspec.json.format(msgspec.json.encode(report), indent=2) + b"\n")


def read_json(path: Path) -> Report:
    """Read what `write_json` wrote."""
    return msgspec.json.decode(path.read_bytes(), type=Report)
