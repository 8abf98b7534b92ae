"""One request on one connection, kept as cheap as Python allows: a protocol, no streams, no JSON beyond what counts.

Each piece of a body is stamped with the moment its bytes came. Knows not when to ask.
"""

import asyncio
from dataclasses import dataclass, field
from time import perf_counter
from typing import cast

import httptools
import msgspec


class _Delta(msgspec.Struct):
    content: str | None = None
    reasoning_content: str | None = None


class _Choice(msgspec.Struct):
    text: str | None = None
    delta: _Delta | None = None
    finish_reason: str | None = None

    @property
    def says(self) -> bool:
        return bool(self.text or (self.delta and (self.delta.content or self.delta.reasoning_content)))


class _Usage(msgspec.Struct):
    prompt_tokens: int = 0
    completion_tokens: int = 0


class _Chunk(msgspec.Struct):
    choices: list[_Choice] = []
    usage: _Usage | None = None
    error: msgspec.Raw = msgspec.Raw(b"null")


_DECODE = msgspec.json.Decoder(_Chunk).decode


@dataclass(slots=True)
class Sample:
    """What became of one request; moments are seconds of `time.perf_counter`.

    Attributes:
        due: when it was to be sent: its latencies count from here.
        sent: when it was.
        times: when each piece of text came.
        ended: when its stream did.
        prompt_tokens: as the server counts them; 0 where it does not say.
        new_tokens: likewise, or the pieces of text where it does not say.
        error: what went wrong, or empty.
    """

    due: float
    sent: float = 0.0
    times: list[float] = field(default_factory=list)
    ended: float = 0.0
    prompt_tokens: int = 0
    new_tokens: int = 0
    finish: str = ""
    error: str = ""


class Connection(asyncio.Protocol):
    """A connection that carries one request at a time."""

    def __init__(self) -> None:
        self._transport: asyncio.Transport | None = None
        self.open = False
        self.used = False  # whether a reply has come over it

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the transport."""
        self._transport = cast("asyncio.Transport", transport)
        self.open = True

    def start(self, request: bytes, sample: Sample) -> asyncio.Future[bytes]:
        """Send a request. The future has the body of a reply that is no event stream, or ConnectionError."""
        assert self._transport is not None
        self._sample = sample
        self._rest = b""
        self._plain = bytearray()
        self._stream = False
        self._done: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        self._parser = httptools.HttpResponseParser(self)
        sample.sent = perf_counter()
        self._transport.write(request)
        return self._done

    def close(self) -> None:
        """Close it."""
        self.open = False
        if self._transport is not None:
            self._transport.close()

    def data_received(self, data: bytes) -> None:
        """Parse what came, under one time stamp."""
        self._now = perf_counter()
        try:
            self._parser.feed_data(data)
        except httptools.HttpParserError as error:
            self._fail(ConnectionError(f"not HTTP: {error}"))

    def connection_lost(self, exc: Exception | None) -> None:
        """Fail what is under way."""
        self.open = False
        self._fail(ConnectionError(str(exc) if exc else "the server closed the connection"))

    def on_header(self, name: bytes, value: bytes) -> None:
        """See whether it is a stream."""
        if name.lower() == b"content-type" and value.startswith(b"text/event-stream"):
            self._stream = True

    def on_body(self, data: bytes) -> None:
        """Take whole lines of a stream; keep anything else."""
        if not self._stream:
            self._plain += data
            return
        *lines, self._rest = (self._rest + data).split(b"\n")
        for line in lines:
            if line.startswith(b"data:"):
                self._event(line[5:].strip())

    def on_message_complete(self) -> None:
        """The reply is over."""
        sample, status = self._sample, self._parser.get_status_code()
        sample.ended = self._now
        if status != 200:
            sample.error = f"HTTP {status}"
        elif self._stream and not sample.error and sample.finish == "":
            sample.error = "the stream ended too early"
        self.used = True
        self.open = self.open and self._parser.should_keep_alive()
        if not self._done.done():
            self._done.set_result(bytes(self._plain))

    def _event(self, data: bytes) -> None:
        sample = self._sample
        if data == b"[DONE]":
            sample.new_tokens = sample.new_tokens or len(sample.times)
            return
        try:
            chunk = _DECODE(data)
        except msgspec.DecodeError:
            sample.error = "an event that is no JSON"
            return
        if bytes(chunk.error) != b"null":
            sample.error = "an error in the stream"
        if chunk.usage is not None:
            sample.prompt_tokens, sample.new_tokens = chunk.usage.prompt_tokens, chunk.usage.completion_tokens
        for choice in chunk.choices:
            if choice.says:
                sample.times.append(self._now)
            sample.finish = choice.finish_reason or sample.finish

    def _fail(self, error: ConnectionError) -> None:
        done: asyncio.Future[bytes] | None = getattr(self, "_done", None)
        if done is not None and not done.done():
            done.set_exception(error)
