"""What the scheduler says of the requests of one reply, kept until its reader asks. Knows no threads and no text.

A slow reader gets more tokens at a time and holds up nobody; what is kept is bounded by the requests' max_tokens.
"""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from scheduler.errors import EngineError
from scheduler.logprobs import TokenLogprobs
from scheduler.request import Event, Finish


@dataclass(slots=True)
class Update:
    """What came for a request since the last look.

    Attributes:
        index: the request's place among those of the stream.
        tokens: new token ids.
        logprobs: one for each of `tokens`, where asked for.
        prompt_logprobs: one for each prompt token after the first, where asked for: once.
        cached: how many of the prompt's tokens needed no computing.
        finish: None while it goes on.
        error: set exactly where `finish` is FAILED.
    """

    index: int
    tokens: list[int] = field(default_factory=list)
    logprobs: list[TokenLogprobs] = field(default_factory=list)
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    cached: int = 0
    finish: Finish | None = None
    error: EngineError | None = None

    @property
    def failed(self) -> bool:
        """Whether it ended otherwise than by its own tokens."""
        return self.finish in (Finish.FAILED, Finish.CANCELLED)

    def parts(self) -> list["Update"]:
        """A failure by itself, after what came before it."""
        if not (self.failed and self.tokens):
            return [self]
        return [replace(self, finish=None, error=None), Update(self.index, finish=self.finish, error=self.error)]

    def add(self, event: Event) -> None:
        """Take an event's news."""
        self.tokens += event.tokens
        self.logprobs += event.logprobs
        self.prompt_logprobs += event.prompt_logprobs
        self.finish, self.error, self.cached = event.finish, event.error, event.cached


class Stream:
    """The events of a reply's requests, for one reader on the event loop."""

    def __init__(self, ids: Sequence[str]) -> None:
        self.ids = tuple(ids)
        self._places = {id_: place for place, id_ in enumerate(ids)}
        self._updates: dict[int, Update] = {}
        self._news = asyncio.Event()

    async def next(self) -> list[Update]:
        """Wait for news; what there is by index, failures last. After an update with a finish there is none of it."""
        await self._news.wait()
        self._news.clear()
        updates = [part for update in self._updates.values() for part in update.parts()]
        self._updates.clear()
        return sorted(updates, key=lambda update: (update.failed, update.index))

    def put(self, event: Event) -> None:
        """Take an event from the scheduler."""
        place = self._places[event.id]
        self._updates.setdefault(place, Update(place)).add(event)
        self._news.set()
