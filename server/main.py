"""The composition root: options -> model folder -> worker -> bridge -> app -> uvicorn. The only file that knows all."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict, dataclass, replace
from importlib.metadata import version
from pathlib import Path
from time import time
from typing import TYPE_CHECKING

from rich.console import Console
from rich.panel import Panel
from rich.table import Table
from starlette.applications import Starlette

from scheduler.config import MEMORY_SHARE, EngineConfig, Memory, fit
from scheduler.engine import PackedEngine
from scheduler.host import available_memory, cores
from scheduler.model.importing import ImportOptions
from scheduler.model.importing.cache import cached_import
from scheduler.model.importing.manifest import read_manifest
from scheduler.model.session import PackedSession
from scheduler.model.spec import ModelSpec
from scheduler.worker import Worker
from server.access import layers, warn_if_open
from server.app import Layer, make_app
from server.bridge import Bridge, Watcher
from server.cards import ModelCard
from server.config import ConfigError, Options
from server.defaults import OPENAI, Defaults, model_defaults
from server.endpoints import Endpoints
from server.feed import Feed
from server.http import HttpServer, check_certificate
from server.inflight import Inflight
from server.journal import Journal, Recorded, log_request
from server.keys import Keys
from server.listening import listening
from server.metrics import Metrics
from server.pages import page_routes
from server.progress import RichProgress
from server.prompt import Prompter
from server.queue import Limits
from server.service import Service
from server.signals import leave
from server.sizes import bytes_of, gib
from server.storage import cache_folder
from server.text_check import check_text
from server.unknown import refuse, warn
from server.vocabulary import Vocabulary

if TYPE_CHECKING:
    from server.tracing import Tracing

LOGGER = logging.getLogger("paceline.server")


@dataclass(frozen=True, slots=True)
class Served:
    """What is served, in what room; `memory` is the budget in bytes."""

    spec: ModelSpec
    config: EngineConfig
    memory: int
    names: tuple[str, ...]
    defaults: Defaults

    @property
    def parts(self) -> dict[str, int]:
        """What the budget goes to, in bytes."""
        spec, config = self.spec, self.config
        needs = Memory.of(spec, self.memory, slots=config.slots, step_rows=config.step_rows)
        return {
            "weights": spec.weight_bytes,
            "work": needs.fixed - spec.weight_bytes + config.context * needs.per_context,
            "cache": config.budget * spec.kv_bytes_per_token,
        }


def serve(options: Options, console: Console) -> int:
    """Serve until a signal; the exit status. What can be refused at once is refused before the model is had.

    Raises EngineError or ImportFailed where the model cannot be had, ConfigError where an address is taken or a named
    file is of no use.
    """
    keys = Keys.load(options.api_key, options.api_key_file)
    check_certificate(options)
    tracing = tracing_class(options)
    with listening(options) as taken:
        served = prepare(options, console)
        traces = [tracing(options.otlp_endpoint, served.names[0], version("paceline"))] if tracing else []
        server = http_server(options, served, keys, traces, console)
        warn_if_open(options, keys)
        status = server.run(taken.open())
    if server.computing:
        leave(status)
    return status


def http_server(
    options: Options, served: Served, keys: Keys, traces: "Sequence[Tracing]", console: Console
) -> HttpServer:
    """The server with everything behind it, not started yet."""
    journal, feed = Journal([log_request, *traces]), Feed(hello(served))
    bridge, service = compose(served, options, [journal, feed])

    @asynccontextmanager
    async def lifespan(_: Starlette) -> AsyncIterator[None]:
        bridge.start()
        yield
        for tracing in traces:
            await asyncio.to_thread(tracing.close)

    middleware: list[Layer] = [*layers(options, keys), lambda app: Recorded(app, journal)]
    app = make_app(Endpoints(service), lifespan, middleware, page_routes(feed, bridge, page=options.page))
    return HttpServer(app, options, bridge, lambda address: announce(options, served, address, console))


def tracing_class(options: Options) -> "type[Tracing] | None":
    """What makes traces, if they are wanted; raises ConfigError where the extra is not installed."""
    if not options.otlp_endpoint:
        return None
    try:
        from server.tracing import Tracing  # noqa: PLC0415 - an extra, and slow to import
    except ImportError as error:
        raise ConfigError("otlp_endpoint wants an extra: pip install 'paceline[otel]'") from error
    return Tracing


def hello(served: Served) -> dict[str, object]:
    """What whoever watches the steps is told first."""
    config = asdict(served.config)
    return {
        "version": version("paceline"),
        "models": served.names,
        **config,
        "capacity": served.config.budget,
        "bytes_per_token": served.spec.kv_bytes_per_token,
    }


def prepare(options: Options, console: Console) -> Served:
    """The packed folder, imported where it must be, and the room it gets."""
    source = Path(options.model) if options.model else None
    import_options = ImportOptions(
        context=options.context,
        weights=options.weights,
        activations=options.activations,
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
    return Served(spec, config, memory, tuple(options.served_model_name) or (spec.name,), defaults)


def budget(asked: str) -> int:
    """The bytes that everything may take."""
    at_hand = available_memory()
    if not asked:
        return int(at_hand * MEMORY_SHARE)
    if bytes_of(asked) > at_hand:
        LOGGER.warning("a memory of %s was asked for, and %s are at hand", asked, gib(at_hand))
    return bytes_of(asked)


def compose(served: Served, options: Options, watchers: Sequence[Watcher]) -> tuple[Bridge, Service]:
    """Everything behind the HTTP server, not started yet."""
    spec, config = served.spec, served.config
    metrics = Metrics(served.names[0], config.budget, lambda: bridge.state)
    metrics.cache_config(
        slots=config.slots,
        context=config.context,
        tokens=config.budget,
        bytes_per_token=spec.kv_bytes_per_token,
        enable_prefix_caching=config.prefix_reuse,
    )
    metrics.memory(served.parts)

    def open_engine() -> PackedEngine:
        return PackedEngine(PackedSession(spec, config), config)

    limits = Limits(config.slots, options.max_queue, options.max_queue_seconds or math.inf)
    bridge = Bridge(lambda sink: Worker(open_engine, sink), limits, [metrics, *watchers])
    created = int(time())
    service = Service(
        cards=tuple(ModelCard(name, created, config.longest, served.defaults) for name in served.names),
        prompter=Prompter.from_folder(
            spec.folder, context=config.longest, vocab_size=spec.vocab_size, end_tokens=spec.end_tokens
        ),
        vocabulary=Vocabulary.from_folder(spec.folder),
        bridge=bridge,
        metrics=metrics,
        max_body=options.max_body,
        inflight=Inflight(),
        defaults=served.defaults,
        on_unknown=refuse if options.unknown_fields == "refuse" else warn,
        isolate_keys=options.isolate_keys,
        versions={name: version(name) for name in ("paceline", "onnxruntime", "onnxruntime-genai")},
    )
    return bridge, service


def announce(options: Options, served: Served, address: str, console: Console) -> None:
    """Say that requests are taken, in the form of the logs."""
    if options.log_format == "json":
        facts = {"address": address, "models": served.names, **asdict(served.config)}
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
        ("threads", f"{config.threads}"),
        ("defaults", str(served.defaults)),
        ("memory", f"{gib(served.memory)}: {gib(parts['weights'])} of weights, {gib(parts['work'])} to work"),
        ("cache", f"{config.budget} tokens in {gib(parts['cache'])}, taken as they arrive"),
        ("address", f"{address}/v1"),
    ):
        table.add_row(f"[bold]{name}[/bold]", value)
    return Panel(table, title=f"paceline {version('paceline')}", expand=False)
