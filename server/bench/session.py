"""The composition of a benchmark: models are prepared, contenders measured, the report shown and written."""

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path

import msgspec
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from tokenizers import Tokenizer

from scheduler.host import cores
from scheduler.model.importing.manifest import now
from scheduler.model.kernels import library
from scheduler.model.spec import ModelSpec
from server.bench.child import Setup
from server.bench.entrants import Peers, entrants
from server.bench.growth import SLACK, Growth
from server.bench.kernels import report as kernels
from server.bench.kernels.cases import Size
from server.bench.machine import machine
from server.bench.options import EQUAL_REQUESTS, BenchError, BenchOptions
from server.bench.plot import svg
from server.bench.process import Process
from server.bench.report import Report, write_json
from server.bench.shape import SHAPES, shape_folder
from server.bench.suite import Entrant, Suite, Told
from server.bench.table import render
from server.bench.targets import FURTHER_TOKENS, serving_targets, shape_targets
from server.bench.work import TEXT
from server.config import Options, load
from server.progress import RichProgress
from server.served import prepare
from server.storage import cache_folder


@dataclass(frozen=True, slots=True)
class Consoles:
    """Where progress is told, and where the result is shown."""

    told: Console
    shown: Console


def measure(options: BenchOptions, flags: Mapping[str, object], consoles: Consoles) -> None:
    """Measure a model beside its peers."""
    serving = _loaded({**flags, "slots": options.concurrency[-1]}, consoles)
    served = prepare(serving, consoles.told)
    ours = _setup(served.spec, options, serving)
    model = Path(serving.model) if serving.model else None
    everyone, missing = entrants(ours, options, Peers(model, cache_folder(serving), RichProgress(consoles.told)))
    ids = Tokenizer.from_file(str(served.spec.folder / "tokenizer.json")).encode(TEXT, add_special_tokens=False).ids
    report = _run(served.spec.name, everyone, options, ids, consoles.told)
    report = msgspec.structs.replace(
        report, targets=serving_targets(report.medians()), left_out=missing | report.left_out
    )
    _finish(report, options, consoles)


def _loaded(flags: Mapping[str, object], consoles: Consoles) -> Options:
    effective = load(flags, os.environ, None)
    for note in effective.notes:
        consoles.told.print(note, highlight=False, markup=False, soft_wrap=True)
    return effective.options


def measure_shape(name: str, options: BenchOptions, flags: Mapping[str, object], consoles: Consoles) -> None:
    """Measure the engine with a random model of a shape, and the memory of its requests."""
    if name not in SHAPES:
        raise BenchError(f"{name!r} is no shape: choose one of {', '.join(SHAPES)}")
    options = replace(options, concurrency=tuple(sorted({*options.concurrency, *EQUAL_REQUESTS})))
    serving = _loaded(flags, consoles)
    library.select(serving.instruction_set)
    spec = ModelSpec.from_folder(shape_folder(name, cache_folder(serving), RichProgress(consoles.told)))
    setup = _setup(spec, options, serving)
    report = _run(spec.name, [Entrant(setup)], options, list(range(1, SHAPES[name].vocab)), consoles.told)
    for cell in report.cells:
        if cell.median.step is None:
            consoles.told.print(f"{cell.concurrency} requests never decoded in one step: give more --new-tokens")
    further = min(FURTHER_TOKENS, spec.context - SLACK)
    consoles.told.print(f"memory of further requests of {further} tokens ...")
    room = msgspec.structs.replace(setup, kind="memory", concurrency=4, context=further + SLACK)
    with Process(room, "server.bench.growth") as process:
        growth = process.ask(room, Growth)
    cache = spec.kv_bytes_per_token * FURTHER_TOKENS
    targets = shape_targets(report.medians(), growth.of(FURTHER_TOKENS), cache)
    _finish(msgspec.structs.replace(report, targets=targets, growth=growth), options, consoles)


def measure_kernels(options: BenchOptions, flags: Mapping[str, object], consoles: Consoles) -> None:
    """Measure each operator alone, and the machine."""
    serving = load(flags, os.environ, None).options
    library.select(serving.instruction_set)
    found = kernels.measure(options.concurrency, serving.threads or cores(), options.repeats, Size())
    consoles.shown.print(kernels.render(found))
    for path in (options.json, options.output and options.output / "kernels.json"):
        if path is not None:
            kernels.write(found, path)


def _setup(spec: ModelSpec, options: BenchOptions, serving: Options) -> Setup:
    """The engine's part; the others' parts differ in kind and path."""
    context = max(options.prompt_tokens + options.new_tokens, 16)
    if context > spec.context:
        raise BenchError(f"{context} tokens do not fit {spec.name}, which was made for {spec.context}")
    return Setup(
        kind="engine",
        path=str(spec.folder),
        threads=serving.threads or cores(),
        concurrency=options.concurrency[-1],
        context=context,
        step_rows=serving.step_rows,
        instruction_set=library.selected(),
    )


def _run(subject: str, everyone: list[Entrant], options: BenchOptions, ids: list[int], told: Console) -> Report:
    """Measure everyone; the report lacks what only the caller knows."""
    with _progress(options.repeats * len(everyone) * (1 + len(options.concurrency)), told) as tell:
        suite = Suite(everyone, options, ids, tell)
        cells = suite.run()
    return Report(
        subject=subject,
        created=now(),
        machine=machine(),
        threads=everyone[0].setup.threads,
        prompt_tokens=options.prompt_tokens,
        new_tokens=options.new_tokens,
        cells=cells,
        left_out=suite.left_out,
    )


@contextmanager
def _progress(total: int, console: Console) -> Iterator[Told]:
    """A bar that is drawn between measurements alone: drawing it takes a core's time."""
    columns = (TextColumn("{task.description}"), BarColumn(), MofNCompleteColumn(), TimeElapsedColumn())
    with Progress(*columns, console=console, auto_refresh=False) as progress:
        task, begun = progress.add_task("", total=total), 0

        def tell(name: str) -> None:
            nonlocal begun
            if name and not console.is_terminal:
                console.print(f"{name} ...")
            progress.update(task, description=name, completed=begun, refresh=True)
            begun += 1

        yield tell


def _finish(report: Report, options: BenchOptions, consoles: Consoles) -> None:
    """Show the report, and write it where it was asked for."""
    consoles.shown.print(render(report))
    if options.output is not None:
        write_json(report, options.output / "bench.json")
        (options.output / "bench.svg").write_text(svg(report), encoding="utf-8")
        consoles.told.print(f"bench.json and bench.svg are in {options.output}")
    if options.json is not None:
        write_json(report, options.json)
