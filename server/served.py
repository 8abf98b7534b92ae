"""What is served and in what room: options -> packed folder, budget, instructions. And what is told of it at the start.

Knows no engine and no HTTP.
"""

import logging
import math
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path

from rich.console import Console
from rich.panel import Panel
from rich.table import Table

from scheduler.config import MEMORY_SHARE, EngineConfig, Memory, fit
from scheduler.host import available_memory, cores, processor
from scheduler.model.importing import ImportOptions
from scheduler.model.importing.cache import cached_import
from scheduler.model.importing.manifest import read_manifest
from scheduler.model.kernels import library
from scheduler.model.spec import ModelSpec
from server.config import Options
from server.defaults import OPENAI, Defaults, model_defaults
from server.progress import RichProgress
from server.sizes import bytes_of, gib
from server.storage import cache_folder
from server.text_check import check_text

LOGGER = logging.getLogger("paceline.server")


@dataclass(frozen=True, slots=True)
class Served:
    """What is served, in what room; `memory` is the budget in bytes, `instruction_set` what the processor lends."""

    spec: ModelSpec
    config: EngineConfig
    memory: int
    names: tuple[str, ...]
    defaults: Defaults
    instruction_set: str

    @property
    def parts(self) -> dict[str, int]:
        """What the budget goes to, in bytes."""
        spec, config = self.spec, self.config
        needs = Memory.of(spec, self.memory, slots=config.slots, step_rows=config.step_rows, threads=config.threads)
        return {
            "weights": spec.weight_bytes,
            "work": needs.fixed - spec.weight_bytes + config.context * needs.per_context,
            "cache": config.budget * spec.kv_bytes_per_token,
        }


def prepare(options: Options, console: Console) -> Served:
    """The instructions to use, the packed folder, imported where it must be, and the room it gets."""
    instruction_set = library.select(options.instruction_set)
    source = Path(options.model) if options.model else None
    import_options = ImportOptions(
        context=options.context,
        weights=options.weights,
        kv_cache=options.kv_cache,
    )
    packed = source is not None and read_manifest(source) is not None
    if source is not None and not packed:
        check_text(source)
    cache = Path() if packed else cache_folder(options)  # what is packed already needs none
    folder = cached_import(source, cache, import_options, RichProgress(console))
    spec = ModelSpec.from_folder(folder)
    memory = budget(options.memory)
    config = fit(
        spec,
        slots=options.slots,
        context=options.context,
        step_rows=options.step_rows,
        threads=options.threads or cores(),
        memory=memory,
    )
    target = options.target_itl / 1000 or math.inf
    config = replace(config, prefix_reuse=options.prefix_reuse, target_itl=target)
    defaults = OPENAI if options.generation_config == "openai" else model_defaults(spec.folder)
    return Served(spec, config, memory, tuple(options.served_model_name) or (spec.name,), defaults, instruction_set)


def budget(asked: str) -> int:
    """The bytes that everything may take."""
    at_hand = available_memory()
    if not asked:
        return int(at_hand * MEMORY_SHARE)
    if bytes_of(asked) > at_hand:
        LOGGER.warning("a memory of %s was asked for, and %s are at hand", asked, gib(at_hand))
    return bytes_of(asked)


def announce(options: Options, served: Served, address: str, console: Console) -> None:
    """Say that requests are taken, in the form of the logs."""
    if options.log_format == "json":
        facts = {"address": address, "models": served.names, "instruction_set": served.instruction_set}
        facts |= asdict(served.config)
        LOGGER.info("ready", extra={"facts": {**facts, "generation_config": asdict(served.defaults)}})
    else:
        console.print(banner(served, address))


def banner(served: Served, address: str) -> Panel:
    """What is served, in what room, and where."""
    config = served.config
    table = Table.grid(padding=(0, 2))
    parts = served.parts
    for name, value in (
        ("model", ", ".join(served.names)),
        ("slots", f"{config.slots} of up to {config.context} tokens, {config.step_rows} rows a step"),
        ("threads", f"{config.threads} of {processor().name}, with {served.instruction_set}"),
        ("defaults", str(served.defaults)),
        ("memory", f"{gib(served.memory)}: {gib(parts['weights'])} of weights, {gib(parts['work'])} to work"),
        ("cache", f"{config.budget} tokens of {served.spec.kv_cache} in {gib(parts['cache'])}, taken as they arrive"),
        ("address", f"{address}/v1"),
    ):
        table.add_row(f"[bold]{name}[/bold]", value)
    return Panel(table, title=f"paceline {version('paceline')}", expand=False)
