"""What each choice at import gives and costs, as a value that can be kept and as a table. Knows no measuring itself."""

from collections.abc import Iterator, Mapping
from pathlib import Path

import msgspec
from rich.box import SIMPLE_HEAD
from rich.filesize import decimal
from rich.table import Table

from scheduler.model.importing.progress import Progress, Silent
from scheduler.model.importing.quality import Quality, compare, step_times
from scheduler.model.importing.texts import held_out

_SILENT = Silent()


class Choice(msgspec.Struct, frozen=True):
    """One way to pack a model.

    Attributes:
        name: what the choice is called.
        quality: against the reference, by text.
        step_seconds: of a decode step, by its rows.
        size: bytes on disk.
    """

    name: str
    quality: dict[str, Quality]
    step_seconds: dict[int, float]
    size: int


class Report(msgspec.Struct, frozen=True):
    """The choices in the order they were asked for, all against the same reference."""

    choices: list[Choice]


def report(choices: Mapping[str, Path], reference: Path, progress: Progress = _SILENT) -> Report:
    """Measure packed folders, by name, against the packed folder of the reference, on the held-out texts.

    Raises:
        BrokenSource: The reference has no tokenizer that can be read.
        ModelFolderError: One of the folders is not a packed model.
        StepFailed: One of the models does not run.

    """
    texts = held_out(reference)
    progress.start("measure quality and steps", 2 * len(choices))
    measured = []
    for name, folder in choices.items():
        quality = compare(reference, folder, texts)
        progress.advance(1)
        measured.append(Choice(name, quality, step_times(folder), _size(folder)))
        progress.advance(1)
    progress.done()
    return Report(measured)


def render(report: Report) -> Table:
    """Draw the report: the reference first, each choice with a line for every text."""
    rows = sorted({count for choice in report.choices for count in choice.step_seconds})
    title = "Against the source's weights in float32, on texts held out"
    table = Table(title=title, box=SIMPLE_HEAD, show_edge=False, padding=(0, 1, 0, 0))
    table.add_column("")
    steps = (f"ms at\n{count} {'row' if count == 1 else 'rows'}" for count in rows)
    for heading in ("KL", "top-1", "perplexity", *steps, "size"):
        table.add_column(heading, justify="right", no_wrap=True)
    for choice in report.choices[:1]:
        table.add_row("reference")
        for text, quality in choice.quality.items():
            table.add_row(f"  {text}", "", "", f"{quality.reference_perplexity:.2f}")
    for choice in report.choices:
        table.add_row(choice.name, "", "", "", *_times(choice, rows), decimal(choice.size))
        for text, quality in choice.quality.items():
            table.add_row(f"  {text}", f"{quality.kl:.4f}", f"{quality.top1:.1%}", f"{quality.perplexity:.2f}")
    return table


def _times(choice: Choice, rows: list[int]) -> Iterator[str]:
    for count in rows:
        yield f"{1000 * choice.step_seconds[count]:.1f}" if count in choice.step_seconds else ""


def _size(folder: Path) -> int:
    return sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
