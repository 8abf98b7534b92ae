"""One submitted request to pieces of text, and those to a reply. Knows no HTTP and no threads.

Whoever stops iterating early, by leaving or by a stop string, cancels the request.
"""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import aclosing
from dataclasses import dataclass
from typing import cast

from scheduler.errors import EngineDown
from scheduler.request import Finish, Request
from server.bridge import Bridge, Stream
from server.errors import Unavailable, api_error
from server.render import DONE, KEEP_ALIVE, Choice, FinishReason, Renderer, Usage
from server.text import TextStream

SILENCE = 15.0
"""Seconds without news after which a stream says that it is alive, lest a proxy cut the line."""


@dataclass(frozen=True, slots=True)
class Piece:
    """New text of a choice, how many tokens it has so far, and its end."""

    text: str
    tokens: int
    finish: FinishReason | None


@dataclass(frozen=True, slots=True)
class Generation:
    """A request seen as text; it is submitted when the first piece is asked for."""

    bridge: Bridge
    request: Request
    text: TextStream

    async def pieces(self) -> AsyncGenerator[Piece | None, None]:
        """The pieces as they come, the last with a finish; None after a while without news.

        Raises ApiError where the request is not admitted or fails.
        """
        stream, tokens = self._submit(), 0
        try:
            while True:
                try:
                    async with asyncio.timeout(SILENCE):
                        update = await stream.next()
                except TimeoutError:
                    yield None
                    continue
                if update.error is not None:
                    raise api_error(update.error)
                delta = self.text.push(update.tokens)
                tokens += delta.counted
                if delta.stop is not None:
                    self.bridge.cancel(stream.id, Finish.STOP)
                    yield Piece(delta.text, tokens, "stop")
                    return
                if update.finish is not None:
                    held = self.text.finish()  # what it gives may still complete a stop string
                    reason = _reason(update.finish) if held.stop is None else "stop"
                    yield Piece(delta.text + held.text, tokens, reason)
                    return
                yield Piece(delta.text, tokens, None)
        finally:
            self.bridge.cancel(stream.id)

    async def reply(self, renderer: Renderer) -> bytes:
        """The body of a plain reply."""
        text: list[str] = []
        last = None
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                if piece is not None:
                    text.append(piece.text)
                    last = piece
        assert last is not None
        assert last.finish is not None
        return renderer.reply([Choice(0, "".join(text), last.finish)], self._usage(last.tokens))

    async def events(self, renderer: Renderer, *, usage: bool, continuous: bool) -> AsyncGenerator[bytes, None]:
        """The server-sent events of a stream; `usage` asks for the counts at the end, `continuous` in every chunk."""
        first = True
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                if piece is None:
                    yield KEEP_ALIVE
                    continue
                counts = self._usage(piece.tokens)
                so_far = counts if continuous else None
                if piece.text:
                    yield renderer.text(0, piece.text, first=first, usage=so_far)
                    first = False
                if piece.finish is not None:
                    yield renderer.end(0, piece.finish, first=first, usage=so_far)
        yield (renderer.usage(counts) if usage else b"") + DONE

    def _submit(self) -> Stream:
        try:
            return self.bridge.submit(self.request)
        except EngineDown as error:
            raise api_error(error) from error

    def _usage(self, tokens: int) -> Usage:
        return Usage(len(self.request.prompt), tokens)


def _reason(finish: Finish) -> FinishReason:
    if finish is Finish.CANCELLED:
        raise Unavailable("The request was cancelled.")
    return cast("FinishReason", finish.value)
