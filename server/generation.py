"""The submitted requests of one reply to pieces of text, and those to the reply. Knows no HTTP and no threads.

Whoever stops iterating early, by leaving or by an error, cancels all of them; a stop string cancels its own.
"""

import asyncio
from collections.abc import AsyncGenerator, Iterable, Iterator, Sequence
from contextlib import aclosing
from dataclasses import dataclass
from itertools import chain

from scheduler.errors import EngineDown
from scheduler.request import Finish, Request
from server.bridge import Bridge
from server.choice import Choice, Piece
from server.errors import RequestTimeout
from server.faces import api_error
from server.inflight import Inflight
from server.render import DONE, KEEP_ALIVE, FinishReason, Part, Renderer, Usage
from server.scores import Score
from server.stream import Stream, Update
from server.stretches import in_stretches

SILENCE = 15.0
"""Seconds without news after which a stream says that it is alive, lest a proxy cut the line."""


@dataclass(frozen=True, slots=True)
class Generation:
    """Requests seen as the choices of one reply; they are submitted when the first piece is asked for.

    Attributes:
        requests: the choices', in order.
        choices: one for each request.
        prompt_tokens: of all prompts, each counted once.
        timeout: seconds until it is given up; None waits.
        names: by which it can be cancelled.
    """

    bridge: Bridge
    inflight: Inflight
    requests: Sequence[Request]
    choices: Sequence[Choice]
    prompt_tokens: int
    timeout: float | None
    names: frozenset[str]

    async def pieces(self) -> AsyncGenerator[Piece | None, None]:
        """The pieces as they come; None after a while without news. Ends when every choice has.

        Raises ApiError where the requests are not admitted, or one fails, or the time is over.
        """
        stream = self._submit()
        deadline = _now() + self.timeout if self.timeout is not None else float("inf")
        try:
            with self.inflight.named(self.names, stream.ids):
                waiting: list[Update] = []  # of choices whose prompt's scores have not come
                while not all(choice.finished for choice in self.choices):
                    updates = await _next(stream, deadline)
                    if updates is None:
                        yield None
                        continue
                    waiting += updates
                    for piece in self._take(waiting):
                        yield piece
        finally:
            for id_ in stream.ids:
                self.bridge.cancel(id_)

    def _take(self, waiting: list[Update]) -> Iterator[Piece]:
        """The pieces of the updates that can be told, one by one, so that what came before an error is; others stay."""
        late = []
        for update in waiting:
            choice = self.choices[update.index]
            if choice.finished:  # a stop string ended it before the scheduler did
                continue
            if not update.failed:
                if choice.first:
                    choice.asked.take(update.prompt_logprobs)
                if not choice.asked.known:
                    late.append(update)
                    continue
            piece = choice.take(update)
            if piece.stopped:
                self.bridge.cancel(self.requests[update.index].id, Finish.STOP)
            yield piece
        waiting[:] = late

    async def reply(self, renderer: Renderer) -> bytes:
        """The body of a plain reply."""
        told = [_Told() for _ in self.choices]
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                if piece is not None:
                    told[piece.index].take(piece)
        parts = [one.part(index) for index, one in enumerate(told)]
        return await in_stretches(renderer.reply(parts, self._usage(sum(one.tokens for one in told))))

    async def events(self, renderer: Renderer, *, usage: bool, continuous: bool) -> AsyncGenerator[bytes, None]:
        """The server-sent events of a stream; `usage` asks for the counts at the end, `continuous` in every chunk."""
        tokens = [0] * len(self.choices)
        begun: set[int] = set()
        async with aclosing(self.pieces()) as pieces:
            async for piece in pieces:
                if piece is None:
                    yield KEEP_ALIVE
                    continue
                tokens[piece.index] = piece.tokens
                counts = self._usage(sum(tokens)) if continuous else None
                for part in _parts(piece, piece.index not in begun):
                    begun.add(piece.index)
                    yield await in_stretches(renderer.chunk(part, counts))
        yield (renderer.usage(self._usage(sum(tokens))) if usage else b"") + DONE

    def _usage(self, tokens: int) -> Usage:
        cached = sum(choice.cached for choice in self.choices if choice.first)
        return Usage(self.prompt_tokens, tokens, cached)

    def _submit(self) -> Stream:
        try:
            return self.bridge.submit(self.requests)
        except EngineDown as error:
            refusal = api_error(error)
            refusal.passing = self.bridge.failure is None  # what brought it down stays
            raise refusal from error


class _Told:
    """A choice of a plain reply, as far as it has come."""

    def __init__(self) -> None:
        self.tokens = 0
        self._texts: list[str] = []
        self._scores: list[Iterable[Score]] = []
        self._scored = False
        self._prompt_scores: Iterable[Score] | None = None
        self._finish: FinishReason | None = None

    def take(self, piece: Piece) -> None:
        """Take the next piece."""
        self.tokens, self._finish = piece.tokens, piece.finish
        self._texts.append(piece.text)
        if piece.scores is not None:
            self._scored = True
            self._scores.append(piece.scores)
        if piece.prompt_scores is not None:
            self._prompt_scores = piece.prompt_scores

    def part(self, index: int) -> Part:
        """The whole choice."""
        scores = chain.from_iterable(self._scores) if self._scored else None
        return Part(index, "".join(self._texts), self._finish, True, scores, self._prompt_scores)


def _parts(piece: Piece, first: bool) -> list[Part]:
    """A piece as chunks: the last of a choice has a finish reason and no text, scores go with the text they are of."""
    if piece.finish is None:
        return [Part(piece.index, piece.text, None, first, piece.scores, piece.prompt_scores)] if piece.text else []
    if not piece.text:
        return [Part(piece.index, "", piece.finish, first, piece.scores, piece.prompt_scores)]
    text = Part(piece.index, piece.text, None, first, piece.scores, piece.prompt_scores)
    return [text, Part(piece.index, "", piece.finish, False, None, None)]


async def _next(stream: Stream, deadline: float) -> list[Update] | None:
    """The next updates; None after a silence. Raises RequestTimeout at the deadline, a moment of the loop's clock."""
    try:
        async with asyncio.timeout_at(min(_now() + SILENCE, deadline)):
            return await stream.next()
    except TimeoutError:
        if _now() < deadline:
            return None
        raise RequestTimeout("The time that the request gave itself is over.") from None


def _now() -> float:
    return asyncio.get_running_loop().time()
