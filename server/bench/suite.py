"""The order of the runs: every repeat measures every contender at every concurrency, one process at a time.

Contenders take turns, and every other repeat goes through them backwards, so that drift of the machine hits all alike.
A process that is not measured is not there: it takes neither memory nor cores.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass

from server.bench.child import Ready, Setup
from server.bench.figures import Figures, figures, over_repeats
from server.bench.options import BenchError, BenchOptions
from server.bench.process import Process, watched
from server.bench.report import Cell
from server.bench.work import Run, Work, prompts

WARM_UP_TOKENS = 4
"""New tokens of the run before each measured one: kernels, buffers and caches meet its shape there."""

Told = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class Entrant:
    """A contender that takes part; one that `may_fail` is left out, with the reason, where it does."""

    setup: Setup
    may_fail: bool = False

    @property
    def name(self) -> str:
        """What it is called in the report."""
        return self.setup.kind


class Suite:
    """The runs of one benchmark.

    Args:
        ids: the tokens that prompts are made of.
        told: called with each measurement's name before it begins, and with "" at the end.
    """

    def __init__(self, entrants: list[Entrant], options: BenchOptions, ids: list[int], told: Told) -> None:
        self._entrants = entrants
        self._options = options
        self._ids = ids
        self._told = told
        self._found: dict[tuple[str, int], list[Figures]] = {}
        self.left_out: dict[str, str] = {}

    def run(self) -> list[Cell]:
        """Measure everything; medians over the repeats, by contender and concurrency."""
        for repeat in range(self._options.repeats):
            for entrant in self._entrants[:: -1 if repeat % 2 else 1]:
                if entrant.name not in self.left_out:
                    self._try(entrant, repeat)
        self._told("")
        return [
            Cell(name, count, over_repeats(found), found)
            for (name, count), found in sorted(self._found.items(), key=self._order)
            if name not in self.left_out
        ]

    def _try(self, entrant: Entrant, repeat: int) -> None:
        try:
            for count, found in self._measure(entrant.setup, repeat):
                self._found.setdefault((entrant.name, count), []).append(found)
        except BenchError as error:
            if not entrant.may_fail:
                raise
            self.left_out[entrant.name] = str(error)

    def _measure(self, setup: Setup, repeat: int) -> Iterator[tuple[int, Figures]]:
        self._told(f"{setup.kind}: load")
        with Process(setup) as process:
            ready = process.ask(setup, Ready)
            for count in self._options.concurrency:
                self._told(f"{setup.kind}: {count} at once, repeat {repeat + 1}")
                process.ask(self._work(count, WARM_UP_TOKENS, f"warm-up {count} {repeat}"), Run)
                work = self._work(count, self._options.new_tokens, f"{count} {repeat}")
                yield count, figures(watched(process, ready.pid, work))

    def _work(self, count: int, new_tokens: int, seed: str) -> Work:
        return Work(prompts(self._ids, count, self._options.prompt_tokens, seed), new_tokens)

    def _order(self, item: tuple[tuple[str, int], list[Figures]]) -> tuple[int, int]:
        (name, count), _ = item
        return count, [entrant.name for entrant in self._entrants].index(name)
