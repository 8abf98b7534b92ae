"""uvicorn, told when to begin and how to end: a first signal drains, a second one ends at once."""

import asyncio
import logging
import signal
import socket
import ssl
from collections.abc import Callable, Coroutine
from contextlib import suppress
from types import FrameType

import uvicorn
from starlette.types import ASGIApp

from server.bridge import Bridge
from server.config import ConfigError, Options
from server.interpreter import keep_what_is_there, share_the_interpreter
from server.protocol import Limits, limited

LOGGER = logging.getLogger("paceline.server")

KEEP_ALIVE = 75
"""Seconds that an idle connection stays: longer than clients and proxies keep theirs (httpx, and so the openai SDK, 5;
nginx and load balancers up to 60), or a request meets a connection that is just being closed."""


class HttpServer(uvicorn.Server):
    """Serves an app until a signal has drained it, or its model could not be loaded.

    Args:
        ready: called with the server's address once requests are taken.
    """

    def __init__(self, app: ASGIApp, options: Options, bridge: Bridge, ready: Callable[[str], None]) -> None:
        super().__init__(_config(app, options))
        self._uds = options.uds
        self._bridge = bridge
        self._ready = ready
        self._drain_timeout = options.drain_timeout
        self._exit_on_failure = options.exit_on_failure
        self._tasks: set[asyncio.Task[None]] = set()
        self._status = 0
        self._loop: asyncio.AbstractEventLoop | None = None

    def run(self, sockets: list[socket.socket] | None = None) -> int:  # type: ignore[override]
        """Serve those who come to the sockets; the exit status."""
        share_the_interpreter()
        with suppress(SystemExit):  # uvicorn has said why it cannot start
            super().run(sockets)
        return self._status if self.started else 1

    @property
    def computing(self) -> bool:
        """Whether the model's thread is still there: nobody waits for it at a second signal, or a start that fails."""
        return self._bridge.alive

    async def serve(self, sockets: list[socket.socket] | None = None) -> None:
        """As `run`, on a loop that runs: signals are heard from here on."""
        self._loop = asyncio.get_running_loop()
        await super().serve(sockets)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Listen, and wait for the model on the side."""
        await super().startup(sockets)
        if self.started:
            self._spawn(self._announce())

    def handle_exit(self, sig: int, frame: FrameType | None) -> None:  # noqa: ARG002 - a signal handler's signature
        """Drain at the first signal, end at the second. Called between bytecodes of the event loop's thread."""
        assert self._loop is not None
        if self._bridge.draining:
            self.should_exit = self.force_exit = True
        else:
            self._bridge.close()
            name = signal.Signals(sig).name
            self._loop.call_soon_threadsafe(lambda: self._spawn(self._drain(name)))

    def _spawn(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.ensure_future(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _announce(self) -> None:
        await self._bridge.opened()
        if self._bridge.failure is not None:
            LOGGER.error("the model cannot be served: %s", self._bridge.failure)
            self._status = 1
            self.should_exit = True
            return
        keep_what_is_there()
        self._ready(self._address())
        await self._mourn()

    async def _mourn(self) -> None:
        """Wait for the scheduler's end, and where it was no stop say so."""
        await self._bridge.fallen()
        if self._bridge.failure is not None:
            LOGGER.error("the engine cannot go on: %s", self._bridge.failure)
            if self._exit_on_failure:
                self._status = 1
                self.should_exit = True

    async def _drain(self, signal_name: str) -> None:
        if self._bridge.in_flight:
            LOGGER.warning(
                "%s: %d requests have %g seconds to finish; a second signal ends them now",
                signal_name,
                self._bridge.in_flight,
                self._drain_timeout,
            )
        await self._bridge.drain(self._drain_timeout)
        self.should_exit = True

    def _address(self) -> str:
        if self._uds:
            return f"unix:{self._uds}"
        host, port = self.servers[0].sockets[0].getsockname()[:2]
        return f"http{'s' if self.config.is_ssl else ''}://{f'[{host}]' if ':' in host else host}:{port}"


def _config(app: ASGIApp, options: Options) -> uvicorn.Config:
    """What uvicorn is told."""
    config = uvicorn.Config(
        app,
        loop="uvloop",
        http=limited(Limits(options.max_head, options.max_connections, options.receive_timeout)),
        ws="none",
        access_log=False,
        log_config=None,
        server_header=False,
        timeout_keep_alive=KEEP_ALIVE,
        timeout_graceful_shutdown=5,
        proxy_headers=bool(options.trusted_proxies),
        forwarded_allow_ips=options.trusted_proxies,
        ssl_certfile=options.ssl_certfile or None,
        ssl_keyfile=options.ssl_keyfile or None,
    )
    config.load()
    return config


def check_certificate(options: Options) -> None:
    """See that the certificate can be used with its key, without a question for its password.

    Raises:
        ConfigError: it cannot.
    """
    if options.ssl_keyfile and not options.ssl_certfile:
        raise ConfigError("ssl_keyfile is set, but not ssl_certfile")
    if not options.ssl_certfile:
        return
    try:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.load_cert_chain(options.ssl_certfile, options.ssl_keyfile or None, password="")
    except (OSError, ValueError) as error:
        named = f" with ssl_keyfile {options.ssl_keyfile}" if options.ssl_keyfile else ""
        raise ConfigError(f"ssl_certfile {options.ssl_certfile} cannot be used{named}: {error}") from error
