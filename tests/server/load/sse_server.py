"""A server of OpenAI's completions that computes nothing: what it sends is made before anyone asks.

Run as a program it listens on a free port and prints it: `python -m tests.server.load.sse_server TOKENS [SECONDS]`
answers with so many tokens, at once or one each so many seconds, all streams in step as from one batch.
"""

import asyncio
import json
import re
import sys
from collections.abc import Callable
from typing import ClassVar, cast

import httptools
import uvloop

HEAD = b"HTTP/1.1 200 OK\r\ncontent-type: %s\r\n%s\r\n\r\n"


def plain(body: object) -> bytes:
    content = json.dumps(body).encode()
    return HEAD % (b"application/json", b"content-length: %d" % len(content)) + content


def stream(events: list[str]) -> bytes:
    """A chunked reply of events, each a chunk of its own."""
    parts = [f"data: {event}\n\n".encode() for event in events]
    chunks = [b"%x\r\n%s\r\n" % (len(part), part) for part in parts]
    return HEAD % (b"text/event-stream", b"transfer-encoding: chunked") + b"".join(chunks) + b"0\r\n\r\n"


def completion(tokens: int) -> list[str]:
    """The events of an answer of so many tokens, each in a chunk of its own, with usage and [DONE]."""

    def chunk(choices: list[object], usage: object = None) -> str:
        head = {"id": "cmpl-1", "object": "text_completion", "created": 1, "model": "none"}
        return json.dumps({**head, "choices": choices, "usage": usage})

    pieces = [chunk([{"index": 0, "text": " word", "finish_reason": None, "logprobs": None}])] * tokens
    end = chunk([{"index": 0, "text": "", "finish_reason": "length", "logprobs": None}])
    usage = {"prompt_tokens": 7, "completion_tokens": tokens, "total_tokens": 7 + tokens}
    return [*pieces, end, chunk([], usage), "[DONE]"]


MODELS = plain({"data": [{"id": "none"}]})


class Answering(asyncio.Protocol):
    """Answers each request on a connection with the same bytes; `answer` may close the transport after them."""

    def __init__(self, answer: Callable[[], bytes | None]) -> None:
        self._answer = answer

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._parser = httptools.HttpRequestParser(self)

    def data_received(self, data: bytes) -> None:
        self._parser.feed_data(data)

    def on_url(self, url: bytes) -> None:
        self._url = url

    def on_message_complete(self) -> None:
        reply = MODELS if self._url.endswith(b"/models") else self._answer()
        if reply is None:
            self._transport.close()
        else:
            self._transport.write(reply)


async def listen(answer: Callable[[], bytes | None]) -> tuple[asyncio.Server, str]:
    """Start on a free port of the loopback; the server and its URL."""
    server = await asyncio.get_running_loop().create_server(lambda: Answering(answer), "127.0.0.1", 0)
    return server, f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}"


class Paced(Answering):
    """Sends a piece of the answer to every stream each `pace` seconds."""

    pieces: ClassVar[list[bytes]]
    begun: ClassVar[dict["Paced", int]] = {}

    def on_message_complete(self) -> None:
        if self._url.endswith(b"/models"):
            self._transport.write(MODELS)
        else:
            self.begun[self] = 0

    @classmethod
    async def run(cls, pace: float) -> None:
        while True:
            await asyncio.sleep(pace)
            for stream_, at in list(cls.begun.items()):
                stream_._transport.write(cls.pieces[at])
                cls.begun[stream_] = at + 1
                if at + 1 == len(cls.pieces):
                    del cls.begun[stream_]


async def _forever(tokens: int, pace: float) -> None:
    reply = stream(completion(tokens))
    make = lambda: Paced(lambda: None) if pace else Answering(lambda: reply)  # noqa: E731
    server = await asyncio.get_running_loop().create_server(make, "127.0.0.1", 0)
    print(f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}", flush=True)
    head, *pieces = re.split(rb"(?=\r\n[0-9a-f]+\r\ndata)", reply)
    Paced.pieces = [head + pieces[0], *pieces[1:]]
    await (Paced.run(pace) if pace else server.serve_forever())


if __name__ == "__main__":
    uvloop.run(_forever(int(sys.argv[1]), float((sys.argv[2:] or ["0"])[0])))
