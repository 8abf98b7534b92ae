"""ASGI replies that end with their client: whatever computes them is cancelled once it has gone. Knows no OpenAI."""

import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping

import anyio
from starlette.responses import Response
from starlette.types import Receive, Scope, Send

from scheduler.errors import EngineError
from server.errors import ApiError, body, event
from server.faces import api_error
from server.record import CURRENT

LOGGER = logging.getLogger("paceline.server")
JSON = "application/json"
_STREAM_HEADERS = [
    (b"content-type", b"text/event-stream; charset=utf-8"),
    (b"cache-control", b"no-cache"),
    (b"x-accel-buffering", b"no"),
]


def json_reply(content: bytes, status: int = 200, headers: Mapping[str, str] | None = None) -> Response:
    """A body that is at hand."""
    return Response(content, status, headers, JSON)


def error_reply(error: BaseException) -> Response:
    """Whatever was raised, as a plain reply; what nobody raised on purpose is logged."""
    face = api_error(error)
    if (record := CURRENT.get()) is not None:
        record.error = face.code or face.type
    if not isinstance(error, ApiError | EngineError):
        LOGGER.error("a request met an error of the server's own", exc_info=error)
    return json_reply(body(face), face.status, face.headers)


class LaterReply:
    """A body that takes long to compute; the computing is cancelled when the client goes away."""

    def __init__(self, compute: Callable[[], Awaitable[bytes]]) -> None:
        self._compute = compute

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Compute and send it, or the error that computing raised."""

        async def work() -> None:
            try:
                reply = json_reply(await self._compute())
            except Exception as error:
                reply = error_reply(error)
            await reply(scope, receive, send)

        await _while_connected(receive, work)


class EventReply:
    """Server-sent events; the generator is closed when the client goes away.

    The status line waits for the first event, so an error before it is an ordinary error reply; one after it becomes
    an event, and the stream closes.
    """

    def __init__(self, events: AsyncGenerator[bytes, None]) -> None:
        self._events = events

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events as they come."""

        async def work() -> None:
            begun = False
            try:
                async for chunk in self._events:
                    if not begun:
                        begun = True
                        await send({"type": "http.response.start", "status": 200, "headers": _STREAM_HEADERS})
                        if scope["method"] == "HEAD":  # nobody waits for what may have no end
                            break
                    await send({"type": "http.response.body", "body": chunk, "more_body": True})
            except Exception as error:
                reply = error_reply(error)
                if not begun:
                    await reply(scope, receive, send)
                    return
                await send({"type": "http.response.body", "body": event(api_error(error)), "more_body": True})
            await send({"type": "http.response.body", "body": b"", "more_body": False})

        try:
            await _while_connected(receive, work)
        finally:
            with anyio.CancelScope(shield=True):
                await self._events.aclose()


async def _while_connected(receive: Receive, work: Callable[[], Awaitable[None]]) -> None:
    """Do the work; stop it where it stands when the client disconnects."""
    async with anyio.create_task_group() as group:

        async def watch() -> None:
            while (await receive())["type"] != "http.disconnect":
                pass
            group.cancel_scope.cancel()

        group.start_soon(watch)
        await work()
        group.cancel_scope.cancel()
