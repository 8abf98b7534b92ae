r"""Logprobs of tokens as logprobs of what they spell, and the text of an echoed prompt. Knows no HTTP.

A token that is a piece of a character is spelled `bytes:\xe2\x80`, as OpenAI spells it: distinct tokens must not look
alike.
"""

import codecs
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

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


def prompt_scores(
    vocabulary: Vocabulary, first: int, reports: Iterable[TokenLogprobs], count: int, offsets: Sequence[int]
) -> tuple[Score, ...]:
    """The whole prompt's scores: of its first token nothing is known, the reports are of the others."""
    begin = Score(_spell(vocabulary, first, None, 0), (), offsets[0])
    rest = (score(vocabulary, report, count, at) for report, at in zip(reports, offsets[1:], strict=True))
    return (begin, *rest)


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
