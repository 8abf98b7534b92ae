r"""Logprobs of tokens as logprobs of what they spell, and the text of an echoed prompt. Knows no HTTP.

A token that is a piece of a character is spelled `bytes:\xe2\x80`, as OpenAI spells it: distinct tokens must not look
alike.
"""

import codecs
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import repeat

from scheduler.logprobs import Ranked, TokenLogprobs
from server.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True)
class Spelled:
    """A token, its spelling as text and as bytes, and how likely it was; the first of a prompt has no logprob."""

    token: int
    text: str
    spelling: bytes
    logprob: float | None
    rank: int


@dataclass(frozen=True, slots=True)
class Score:
    """What is reported of one place in a text.

    Attributes:
        chosen: the token that stands there.
        top: the likeliest ones, in order.
        offset: where it begins in the choice's text.
    """

    chosen: Spelled
    top: tuple[Spelled, ...]
    offset: int


@dataclass(frozen=True, slots=True)
class Echo:
    """A prompt as text, and where each of its tokens begins in it."""

    text: str = ""
    offsets: tuple[int, ...] = ()


def score(vocabulary: Vocabulary, report: TokenLogprobs, count: int, offset: int) -> Score:
    """A report in words, with the `count` likeliest of those it has."""
    top = tuple(_spelled(vocabulary, ranked) for ranked in report.top[:count])
    return Score(_spelled(vocabulary, report.chosen), top, offset)


@dataclass(frozen=True, slots=True)
class PromptScores:
    """The whole prompt's scores, put into words while they are iterated over, since there may be very many.

    Attributes:
        first: the prompt's first token, of which nothing is known.
        reports: of the others.
        count: how many of the likeliest are told of each.
        offsets: where each token begins; None where nobody asked.
    """

    vocabulary: Vocabulary
    first: int
    reports: Sequence[TokenLogprobs]
    count: int
    offsets: Sequence[int] | None = None

    def __iter__(self) -> Iterator[Score]:
        """The scores in order."""
        offsets: Iterable[int] = repeat(0) if self.offsets is None else self.offsets
        places = iter(offsets)
        yield Score(_spell(self.vocabulary, self.first, None, 0), (), next(places))
        for report, at in zip(self.reports, places, strict=self.offsets is not None):
            yield score(self.vocabulary, report, self.count, at)


def echo_of(vocabulary: Vocabulary, tokens: Sequence[int]) -> Echo:
    """The text of a prompt that came as tokens, special ones included."""
    decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
    pieces: list[str] = []
    offsets, length = [], 0
    for token in tokens:
        offsets.append(length)
        pieces.append(decoder.decode(vocabulary.spelling_of(token)))
        length += len(pieces[-1])
    return Echo("".join(pieces) + decoder.decode(b"", final=True), tuple(offsets))


def _spelled(vocabulary: Vocabulary, ranked: Ranked) -> Spelled:
    return _spell(vocabulary, ranked.token, ranked.logprob, ranked.rank)


def _spell(vocabulary: Vocabulary, token: int, logprob: float | None, rank: int) -> Spelled:
    spelling = vocabulary.spelling_of(token)
    try:
        text = spelling.decode()
    except UnicodeDecodeError:
        text = "bytes:" + "".join(f"\\x{byte:02x}" for byte in spelling)
    return Spelled(token, text, spelling, logprob, rank)
