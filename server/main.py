"""The composition root: options -> model folder -> worker -> bridge -> app -> uvicorn. The only file that knows all."""

import asyncio
import logging
import math
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import asdict
from importlib.metadata import version
from time import time
from typing import TYPE_CHECKING

from rich.console import Console
from starlette.applications import Starlette

from scheduler.engine import PackedEngine
from scheduler.model.session import PackedSession
from scheduler.worker import Worker
from server.access import layers, warn_if_open
from server.app import Layer, make_app
from server.bridge import Bridge, Watcher
from server.cards import ModelCard
from server.config import ConfigError, Options
from server.endpoints import Endpoints
from server.feed import Feed
from server.http import HttpServer, check_certificate
from server.inflight import Inflight
from server.journal import Journal, Recorded, log_request
from server.keys import Keys
from server.listening import listening
from server.metrics import Metrics
from server.pages import page_routes
from server.prompt import Prompter
from server.queue import Limits
from server.served import Served, announce, prepare
from server.service import Service
from server.signals import leave
from server.unknown import refuse, warn
from server.vocabulary import Vocabulary

if TYPE_CHECKING:
    from server.tracing import Tracing

LOGGER = logging.getLogger("paceline.server")


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
