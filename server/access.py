"""Who may ask: ASGI middleware that lets in only known keys. Knows no endpoint but by its path."""

import logging
from collections.abc import Callable, Collection

from starlette.datastructures import Headers
from starlette.middleware.cors import CORSMiddleware
from starlette.responses import Response
from starlette.types import ASGIApp, Receive, Scope, Send

from server.addresses import is_loopback
from server.config import Options
from server.errors import SHOULD_RETRY, Unauthorized
from server.keys import Keys
from server.record import CURRENT
from server.reply import error_reply

LOGGER = logging.getLogger("paceline.server")
Layer = Callable[[ASGIApp], ASGIApp]

OPEN = frozenset({"/health", "/live", "/"})
"""What needs no key: probes have none, and the page is the same for everybody; what it shows it asks the API for."""

OPEN_BELOW = "/page/"
"""The page's own files."""


class Access:
    """Answers 401 without a known key; the key's name goes on as `key` in the scope's state.

    Args:
        keys: who is let in.
        open_paths: paths that need no key.
    """

    def __init__(self, app: ASGIApp, keys: Keys, open_paths: Collection[str] = OPEN) -> None:
        self._app = app
        self._keys = keys
        self._open = frozenset(open_paths)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on, or refuse it."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        scheme, _, key = Headers(scope=scope).get("authorization", "").partition(" ")
        name = self._keys.name_of(key.strip()) if scheme.lower() == "bearer" else None
        if name is not None:
            scope.setdefault("state", {})["key"] = name
            if (record := CURRENT.get()) is not None:
                record.key = name
        elif not self._is_open(scope["path"]):
            await error_reply(Unauthorized(given=bool(key)))(scope, receive, send)
            return
        await self._app(scope, receive, send)

    def _is_open(self, path: str) -> bool:
        return path in self._open or path.startswith(OPEN_BELOW)


def layers(options: Options, keys: Keys) -> list[Layer]:
    """The middleware, the innermost first: a preflight needs no key, hence CORS is outside."""
    wanted: list[Layer] = []
    if keys:
        open_paths = OPEN | {"/metrics"} if options.public_metrics else OPEN
        wanted.append(lambda app: Access(app, keys, open_paths))
    if options.cors_origins:
        wanted.append(lambda app: _cors(app, options.cors_origins))
    return wanted


class _Cors(CORSMiddleware):
    """Starlette's, but for the leave to reach a private network, which only an allowed origin gets."""

    def preflight_response(self, request_headers: Headers) -> Response:
        reply = super().preflight_response(request_headers)
        if not self.is_allowed_origin(request_headers["origin"]):
            del reply.headers["access-control-allow-private-network"]
        return reply


def _cors(app: ASGIApp, origins: list[str]) -> ASGIApp:
    return _Cors(
        app,
        origins,
        allow_methods=["GET", "POST"],
        allow_headers=["*"],
        allow_private_network=True,  # a public page may ask the server on its reader's own machine
        expose_headers=["x-request-id", "retry-after", SHOULD_RETRY],
    )


def warn_if_open(options: Options, keys: Keys) -> None:
    """Say so where strangers may ask."""
    if not keys and not options.uds and not is_loopback(options.host):
        LOGGER.warning(
            "everyone who can reach %s may use this server: give it an --api-key or an --api-key-file", options.host
        )
