"""Stages of an import or a download as a bar in the terminal, or as lines where there is none."""

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TaskID, TextColumn, TimeElapsedColumn


class RichProgress:
    """`scheduler.model.importing.Progress` on a console; one stage at a time."""

    def __init__(self, console: Console) -> None:
        columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
        self._console = console
        self._progress = Progress(*columns, console=console)
        self._task: TaskID | None = None

    def start(self, label: str, total: int | None) -> None:
        """Begin a stage of `total` units."""
        if not self._console.is_terminal:
            self._console.print(f"{label} ...")
        self._progress.start()
        self._task = self._progress.add_task(label, total=total)

    def advance(self, amount: int) -> None:
        """Move the stage's bar by `amount` units."""
        if self._task is not None:
            self._progress.advance(self._task, amount)

    def done(self) -> None:
        """End the stage."""
        self._progress.stop()
        if self._task is not None:
            self._progress.remove_task(self._task)
            self._task = None
