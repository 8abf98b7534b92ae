"""The lightest client of `POST /v1/completions` streams: on few cores, a client's work is taken from the server's.

While the streams run, bytes are only kept with the moment they came; they are read when all have ended. It relies on
what the servers do: each event lies whole in one chunk of the body, and the connection closes at the end.
"""

import asyncio
import bisect
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from time import perf_counter
from types import MappingProxyType
from typing import cast

import msgspec

EVENT = re.compile(rb"data: (\{.*?\})\n\n")
LIMIT = 1800
"""Seconds after which streams that have not ended never will."""


@dataclass(slots=True)
class Answer:
    """One stream, read.

    Attributes:
        tokens: that the server says it generated; pieces of text, where it says nothing.
        arrivals: when pieces of text came, in seconds since the beginning.
        body: all that was received.
    """

    tokens: int
    arrivals: list[float] = field(default_factory=list)
    body: bytes = b""


class Usage(msgspec.Struct, frozen=True):
    """What the last chunk says of the request."""

    completion_tokens: int


class Chunk(msgspec.Struct, frozen=True):
    """What is read of a chunk; a piece's text is not."""

    choices: list[dict[str, object]] = []
    usage: Usage | None = None


class Stream(asyncio.Protocol):
    """One connection: sends its request when it is made, and keeps what comes."""

    def __init__(self, request: bytes) -> None:
        self._request = request
        self.ended = asyncio.get_running_loop().create_future()
        self.received: list[bytes] = []
        self.moments: list[float] = []

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Send the request."""
        cast("asyncio.WriteTransport", transport).write(self._request)  # uvloop's transports have bases of their own

    def data_received(self, data: bytes) -> None:
        """Keep it for later."""
        self.moments.append(perf_counter())
        self.received.append(data)

    def connection_lost(self, exc: Exception | None) -> None:
        """The server has closed."""
        if exc is None:
            self.ended.set_result(None)
        else:
            self.ended.set_exception(exc)


def completion_request(
    prompt: list[int] | str, new_tokens: int, fields: Mapping[str, object] = MappingProxyType({})
) -> bytes:
    """A whole HTTP request for exactly that many tokens, greedily, as a stream.

    Fields are what a server wants besides.
    """
    options = {"max_tokens": new_tokens, "temperature": 0, "ignore_eos": True}
    streamed = {"stream": True, "stream_options": {"include_usage": True}}
    body = msgspec.json.encode({"prompt": prompt, **options, **streamed, **fields})
    head = "POST /v1/completions HTTP/1.1\r\nhost: localhost\r\nconnection: close\r\n"
    return f"{head}content-type: application/json\r\ncontent-length: {len(body)}\r\n\r\n".encode() + body


async def gather(host: str, port: int, requests: list[bytes]) -> tuple[float, list[Answer]]:
    """Send all at once; the seconds until the last has ended, and the answers in order."""
    loop = asyncio.get_running_loop()
    begin = perf_counter()
    made = (loop.create_connection(partial(Stream, request), host, port) for request in requests)
    streams = [stream for _, stream in await asyncio.gather(*made)]
    async with asyncio.timeout(LIMIT):
        await asyncio.gather(*(stream.ended for stream in streams))
    seconds = perf_counter() - begin
    return seconds, [read(stream.received, stream.moments, begin) for stream in streams]


def read(received: list[bytes], moments: list[float], begin: float) -> Answer:
    """Find in what came at which moment how many tokens there are, and when pieces of text came."""
    body = b"".join(received)
    ends, size = list[int](), 0
    for data in received:
        size += len(data)
        ends.append(size)
    answer, pieces, told = Answer(tokens=0, body=body), 0, False
    for event in EVENT.finditer(body):
        chunk = msgspec.json.decode(event[1], type=Chunk)
        if chunk.usage is not None:
            answer.tokens, told = answer.tokens + chunk.usage.completion_tokens, True
        if any(choice.get("text") for choice in chunk.choices):
            pieces += 1
            moment = moments[bisect.bisect_left(ends, event.end())] - begin
            if not answer.arrivals or moment > answer.arrivals[-1]:  # pieces that come together are one arrival
                answer.arrivals.append(moment)
    if not told:
        answer.tokens = pieces
    return answer
