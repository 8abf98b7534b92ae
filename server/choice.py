"""One choice of a reply: the scheduler's updates of its request to pieces of text. Knows no HTTP and no asyncio."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from itertools import chain
from typing import cast

from scheduler.logprobs import TokenLogprobs
from scheduler.request import Finish
from server.call import Reporting
from server.errors import Cancelled
from server.faces import api_error
from server.prompt import Prompt
from server.render import FinishReason
from server.scores import Echo, PromptScores, Score, echo_of, score
from server.stream import Update
from server.text import TextStream
from server.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Piece:
    """New text of a choice.

    Attributes:
        text: often empty.
        tokens: how many tokens the choice has so far.
        finish: why it ended, or None.
        stopped: whether a stop string ended it, so that its request goes on for nobody.
        scores: of the tokens since the last piece with text, to be iterated over once; None where nobody asked.
        prompt_scores: of the prompt's tokens, in the choice's first piece with text, or its last; None where nobody
            asked.
    """

    index: int
    text: str
    tokens: int
    finish: FinishReason | None
    stopped: bool
    scores: Iterable[Score] | None
    prompt_scores: Iterable[Score] | None


class Asked:
    """A prompt as its choices need it: its text where it is echoed, and its scores once they have come."""

    def __init__(self, vocabulary: Vocabulary, prompt: Prompt, reporting: Reporting) -> None:
        self._vocabulary = vocabulary
        self._tokens = prompt.tokens
        self._reporting = reporting
        self.stop = prompt.stop
        self.echo = Echo()
        if reporting.echo:
            whole = prompt.text is None
            self.echo = echo_of(vocabulary, prompt.tokens) if whole else Echo(prompt.text or "", prompt.offsets)
        self.known = reporting.of_prompt is None
        self.scores: PromptScores | None = None  # as prompt_logprobs
        self.echoed: PromptScores | None = None  # as part of logprobs

    def take(self, reports: Sequence[TokenLogprobs]) -> None:
        """Take the scores, which come once, with the first choice's first update."""
        if self.known:
            return
        self.known = True
        count = self._reporting.prompt_logprobs
        if count is not None:
            self.scores = PromptScores(self._vocabulary, self._tokens[0], reports, count)
        count = self._reporting.logprobs
        if count is not None and self._reporting.echo:
            self.echoed = PromptScores(self._vocabulary, self._tokens[0], reports, count, self.echo.offsets)


class Choice:
    """A choice while it is made.

    Attributes:
        asked: the prompt, which several choices may share.
        first: whether it is the prompt's first choice, whose request scores the prompt.
        finished: whether its last piece has been made.
        cached: how many of the prompt's tokens needed no computing.
    """

    def __init__(self, index: int, asked: Asked, vocabulary: Vocabulary, logprobs: int | None, *, first: bool) -> None:
        self.index = index
        self.asked = asked
        self.first = first
        self._vocabulary = vocabulary
        self._text = TextStream(vocabulary, asked.stop)
        self._logprobs = logprobs
        self._begun = False  # whether a piece with text or the end has gone out
        self._scores: list[Score] = []  # of tokens whose text is held back
        self._tokens = 0
        self.finished = False
        self.cached = 0

    def take(self, update: Update) -> Piece:
        """The piece that an update makes; raises ApiError where the request failed or was cancelled."""
        if update.error is not None:
            raise api_error(update.error)
        if update.finish is Finish.CANCELLED:
            raise Cancelled("The request was cancelled.")
        self.cached = update.cached
        delta = self._text.push(update.tokens)
        text, stop = delta.text, delta.stop
        self._tokens += delta.counted
        if stop is None and update.finish is not None:
            held = self._text.finish()  # what it gives may still complete a stop string
            text, stop = text + held.text, held.stop
        if self._logprobs is not None:
            self._score(update, delta.offsets, self._logprobs)
        finish = "stop" if stop is not None else _reason(update.finish)
        self.finished = finish is not None
        return self._piece(text, finish, stopped=update.finish is None and stop is not None)

    def _score(self, update: Update, offsets: Sequence[int], count: int) -> None:
        before = len(self.asked.echo.text)
        for report, offset in zip(update.logprobs, offsets, strict=False):  # what does not count has no offset
            self._scores.append(score(self._vocabulary, report, count, before + offset))

    def _piece(self, text: str, finish: FinishReason | None, *, stopped: bool) -> Piece:
        if not self._begun:
            text = self.asked.echo.text + text
        if not text and finish is None:
            return Piece(self.index, "", self._tokens, None, stopped, None, None)
        scores: Iterable[Score] | None = None if self._logprobs is None else tuple(self._scores)
        if not self._begun and scores is not None and self.asked.echoed is not None:
            scores = chain(self.asked.echoed, scores)
        told = None if self._begun else self.asked.scores
        self._begun = True
        self._scores.clear()
        return Piece(self.index, text, self._tokens, finish, stopped, scores, told)


def _reason(finish: Finish | None) -> FinishReason | None:
    return None if finish is None else cast("FinishReason", finish.value)
