"""uvicorn's HTTP protocol with limits: connections at once, and bytes of a request's head. Knows no endpoint."""

import asyncio
from dataclasses import dataclass
from http import HTTPStatus
from typing import ClassVar

from starlette.types import Receive, Scope, Send
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from server.errors import ApiError, BadRequest, HeadTooLarge, Unavailable, body
from server.reply import error_reply

PATIENCE = 5.0
"""Seconds that a connection too many has to ask something, so that it can be told."""


@dataclass(frozen=True, slots=True)
class Limits:
    """Bytes of a request's line and headers at the most, and connections at once."""

    head: int
    connections: int


def limited(limits: Limits) -> type[HttpToolsProtocol]:
    """The protocol class with these limits; uvicorn makes one object for each connection."""
    return type("Limited", (LimitedProtocol,), {"limits": limits})


class LimitedProtocol(HttpToolsProtocol):
    """One connection. The parser itself would take a head of any size, and a single header without an end."""

    limits: ClassVar[Limits]
    _head = 0  # bytes of the head so far
    _in_head = True
    _completed = False  # whether a message was, with the latest data

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Serve the connection, or only apologise on it."""
        super().connection_made(transport)
        if len(self.connections) > self.limits.connections:
            self.app = _too_many
            self.loop.call_later(PATIENCE, transport.close)

    def data_received(self, data: bytes) -> None:
        """Parse what came; refuse a head that grows without an end."""
        self._completed = False
        super().data_received(data)
        if self._in_head and not self._completed and not self.transport.is_closing():
            self._head += len(data)
            if self._head > self.limits.head:
                self._refuse(HeadTooLarge(self.limits.head))

    def on_message_begin(self) -> None:
        """A head begins."""
        self._head, self._in_head, self._parsed = 0, True, 0
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
        """A head ends."""
        self._in_head = False
        super().on_headers_complete()

    def on_message_complete(self) -> None:
        """The next head may begin."""
        super().on_message_complete()
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

    _parsed = 0

    def _refuse(self, error: ApiError) -> None:
        content = body(error)
        status = f"HTTP/1.1 {error.status} {HTTPStatus(error.status).phrase}\r\n"
        head = f"content-type: application/json\r\ncontent-length: {len(content)}\r\nconnection: close\r\n\r\n"
        self.transport.write(status.encode() + head.encode() + content)
        self.transport.close()


async def _too_many(scope: Scope, receive: Receive, send: Send) -> None:
    reply = error_reply(Unavailable("Too many connections are open; try again later.", headers={"retry-after": "1"}))
    reply.headers["connection"] = "close"
    await reply(scope, receive, send)
