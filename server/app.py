"""Routes, lifespan and pure-ASGI middleware. Knows nothing of the scheduler."""

import re
import secrets
from collections.abc import Callable, Sequence
from contextlib import AbstractAsyncContextManager

from starlette.applications import Starlette
from starlette.datastructures import Headers, MutableHeaders
from starlette.exceptions import HTTPException
from starlette.middleware import Middleware
from starlette.requests import ClientDisconnect, Request
from starlette.responses import Response
from starlette.routing import BaseRoute, Route
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from server.endpoints import Endpoints
from server.errors import ApiError, NotFound
from server.http_errors import MethodNotAllowed
from server.journal import GONE
from server.reply import error_reply

Lifespan = Callable[[Starlette], AbstractAsyncContextManager[None]]
Layer = Callable[[ASGIApp], ASGIApp]
REQUEST_ID = "x-request-id"
_SAFE_ID = re.compile(r"[!-~]{1,256}")


def make_app(
    endpoints: Endpoints, lifespan: Lifespan, layers: Sequence[Layer] = (), routes: Sequence[BaseRoute] = ()
) -> ASGIApp:
    """The ASGI application around the handlers.

    `layers` is middleware, the innermost first; each request has its id already when it comes to them. `routes` lead
    to what is no endpoint of the API.
    """
    get, post = ["GET"], ["POST"]
    api = [
        Route("/v1/completions", endpoints.completions, methods=post),
        Route("/v1/chat/completions", endpoints.chat_completions, methods=post),
        Route("/v1/requests/{id:path}/cancel", endpoints.cancel, methods=post),
        Route("/tokenize", endpoints.tokenize, methods=post),
        Route("/detokenize", endpoints.detokenize, methods=post),
        Route("/v1/models", endpoints.models, methods=get),
        Route("/v1/models/{id:path}", endpoints.model, methods=get),
        Route("/health", endpoints.health, methods=get),
        Route("/live", endpoints.live, methods=get),
        Route("/metrics", endpoints.metrics, methods=get),
        Route("/version", endpoints.version, methods=get),
        Route("/load", endpoints.load, methods=get),
        Route("/openapi.json", endpoints.openapi, methods=get),
    ]
    handlers = {ApiError: _any_error, HTTPException: _http_error, ClientDisconnect: _gone}
    starlette = Starlette(
        routes=[*api, *routes], lifespan=lifespan, middleware=[Middleware(LastResort)], exception_handlers=handlers
    )
    starlette.router.redirect_slashes = False  # the protocol takes needless ones away
    app: ASGIApp = starlette
    for layer in layers:
        app = layer(app)
    return RequestId(app)


async def _any_error(_: Request, error: Exception) -> Response:
    return error_reply(error)


async def _gone(_: Request, __: Exception) -> Response:
    """Nobody reads it; the status is for the log."""
    return Response(status_code=GONE)


async def _http_error(request: Request, error: Exception) -> Response:
    """Starlette's own refusals, of a path or a method."""
    assert isinstance(error, HTTPException)
    if error.status_code == 405:
        return error_reply(MethodNotAllowed(request.method, (error.headers or {}).get("Allow", "")))
    return error_reply(NotFound(f"There is no {request.url.path} here."))


class LastResort:
    """Answers what nobody else has caught, and logs it once: passed on, uvicorn would log it again and drop the line.

    Where an answer has begun, uvicorn cuts it off, since it is not complete.
    """

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        begun = False

        async def send_noted(message: Message) -> None:
            nonlocal begun
            begun = True
            await send(message)

        try:
            await self._app(scope, receive, send_noted)
        except Exception as error:
            reply = error_reply(error)
            if not begun:
                await reply(scope, receive, send)


class RequestId:
    """Gives every answer an `x-request-id`: the client's where it sent a usable one, or a new one."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = Headers(scope=scope).get(REQUEST_ID, "")
        id_ = sent if _SAFE_ID.fullmatch(sent) else secrets.token_hex(16)
        scope.setdefault("state", {})["request_id"] = id_

        async def send_with_id(message: Message) -> None:
            if message["type"] == "http.response.start":
                MutableHeaders(scope=message)[REQUEST_ID] = scope["state"]["request_id"]  # the body may name another
            await send(message)

        await self._app(scope, receive, send_with_id)
