"""uvicorn's HTTP protocol as strangers need it: with limits, deadlines and answers for odd requests.

Limited are connections at once, bytes of a request's head, and the time that a client takes to send a request. An
offer to upgrade is declined, and its request served. Knows no endpoint.
"""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import ClassVar

import httptools
from starlette.types import ASGIApp, Message, Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

from server.errors import ApiError, BadRequest, Unavailable, body
from server.http_errors import HeadTooLarge, MethodNotAllowed, RequestIncomplete
from server.patience import Patience
from server.reply import error_reply
from server.unread import Unread
from server.wire import tidy, without_upgrade

PATIENCE = 5.0
"""Seconds that a connection too many has to ask something, so that it can be told."""


@dataclass(frozen=True, slots=True)
class Limits:
    """How much of strangers is borne.

    Attributes:
        head: bytes of a request's line and headers.
        connections: at once.
        seconds: between a request's bytes.
        unread: seconds in which a client takes nothing of an answer.
    """

    head: int
    connections: int
    seconds: float
    unread: float = 120.0


def limited(limits: Limits) -> type[HttpToolsProtocol]:
    """The protocol class with these limits; uvicorn makes one object for each connection."""
    return type("Limited", (LimitedProtocol,), {"limits": limits})


class LimitedProtocol(HttpToolsProtocol):
    """One connection. The parser itself would take a head of any size, and a single header without an end."""

    limits: ClassVar[Limits]
    _head = 0  # bytes of the head so far, as they came
    _parsed = 0  # as they were understood
    _in_head = True
    _completed = False  # whether a message was, with the latest data
    _declined = False  # whether the head asks for another protocol, and has to be read again without that
    _watch: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Serve the connection, or only apologise on it."""
        super().connection_made(transport)
        self._patience = Patience(self.limits.seconds)
        self._unread = Unread(transport, self.loop, self.limits.unread)
        self._await_request()
        if len(self.connections) > self.limits.connections:
            self.app = _too_many
            self.loop.call_later(PATIENCE, transport.close)

    def connection_lost(self, exc: Exception | None) -> None:
        """Wait for nothing any more."""
        if self._watch is not None:
            self._watch.cancel()
        self._unread.end()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """The client is slower than its answer."""
        super().pause_writing()
        self._unread.begin()

    def resume_writing(self) -> None:
        """It has caught up."""
        super().resume_writing()
        self._unread.end()

    def data_received(self, data: bytes) -> None:
        """Parse what came; refuse a head that grows without an end."""
        self._unset_keepalive_if_required()
        if not self._patience.awaiting:
            self._await_request()
        self._patience.heard(len(data), self.loop.time())
        self._completed = False
        try:
            self._feed(data)
        except httptools.HttpParserError:
            self.send_400_response("Invalid HTTP request received.")
            return
        if self._in_head and not self._completed and not self.transport.is_closing():
            self._head += len(data)
            if self._head > self.limits.head:
                self._refuse(HeadTooLarge(self.limits.head))

    def _feed(self, data: bytes) -> None:
        """Parse; where a head asked for another protocol, go on as if it had not."""
        while data:
            try:
                self.parser.feed_data(data)
                return
            except httptools.HttpParserUpgrade as over:
                rest = data[over.args[0] :]
            if self.parser.get_method() == b"CONNECT":
                self._refuse(MethodNotAllowed("CONNECT", "GET, POST"))
                return
            head = without_upgrade(self.parser.get_method(), self.url, self.parser.get_http_version(), self.headers)
            self.parser = httptools.HttpRequestParser(self)
            self._declined = False
            data = head + rest

    def on_message_begin(self) -> None:
        """A head begins."""
        self._head, self._in_head, self._parsed = 0, True, 0
        if not self._patience.awaiting:  # its beginning came with the end of the one before
            self._await_request()
            self._patience.heard(1, self.loop.time())
        super().on_message_begin()

    def on_url(self, url: bytes) -> None:
        """Count a part of the path."""
        self._count(len(url))
        super().on_url(url)

    def on_header(self, name: bytes, value: bytes) -> None:
        """Count a header."""
        self._count(len(name) + len(value) + 4)
        super().on_header(name, value)

    def on_headers_complete(self) -> None:
        """A head ends: begin to serve the request, unless it has to be read once more."""
        if self.parser.should_upgrade():
            self._declined = True
            return
        self._in_head = False
        self.url = tidy(self.url)
        if self.parser.get_http_version() >= "1.1":
            super().on_headers_complete()
            return
        served = self.app
        self.app = unframed = _Unframed(served)
        super().on_headers_complete()
        self.app, unframed.cycle = served, self.cycle

    def on_message_complete(self) -> None:
        """The next head may begin."""
        if self._declined:
            return
        super().on_message_complete()
        self._patience.end()
        self._head, self._in_head = 0, True
        self._completed = True  # these data were, but for their end, a body

    def send_400_response(self, msg: str) -> None:
        """Refuse what the parser could not read, or what `_count` stopped it at."""
        over = self._parsed > self.limits.head
        self._refuse(HeadTooLarge(self.limits.head) if over else BadRequest(msg))

    def _count(self, size: int) -> None:
        self._parsed += size
        if self._parsed > self.limits.head:
            raise ValueError("the head is too large")  # ends the parsing; send_400_response answers

    def _refuse(self, error: ApiError) -> None:
        content = body(error)
        head = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
        head += "".join(f"{name}: {value}\r\n" for name, value in error.headers.items())
        head += f"content-type: application/json\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
        self.transport.write(head.encode() + content)
        self.transport.close()

    def _await_request(self) -> None:
        self._patience.begin(self.loop.time())
        if self._watch is None:
            self._watch = self.loop.call_later(self.limits.seconds, self._look)

    def _look(self) -> None:
        """End the connection where its client took too long over a request, or look again later."""
        self._watch = None
        if not self._patience.awaiting or self.transport.is_closing():
            return
        now = self.loop.time()
        if self._is_our_turn():
            self._patience.excuse(now)
        if now < self._patience.deadline:
            self._watch = self.loop.call_at(self._patience.deadline, self._look)
        elif self._patience.received and (self._in_head or not self.cycle.response_started):
            self._refuse(RequestIncomplete())
        else:
            self.transport.close()

    def _is_our_turn(self) -> bool:
        """Whether the client cannot or need not send more before something of ours has happened."""
        return self.flow.read_paused or (self._answering() and not self.cycle.more_body)

    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete


class _Unframed:
    """Answers a client of HTTP/1.0, which knows no chunks: without a length, the end of the connection ends the body.

    Attributes:
        cycle: uvicorn's part in the answer, told before it begins.
    """

    cycle: RequestResponseCycle

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def send_unframed(message: Message) -> None:
            self.cycle.chunked_encoding = False
            self.cycle.expected_content_length = len(message.get("body", b""))  # this piece, of whatever there will be
            await send(message)

        await self._app(scope, receive, send_unframed)


async def _too_many(scope: Scope, receive: Receive, send: Send) -> None:
    reply = error_reply(Unavailable("Too many connections are open; try again later.", headers={"retry-after": "1"}))
    reply.headers["connection"] = "close"
    await reply(scope, receive, send)
