"""Token ids to text deltas, for one choice of one reply.

Two things are held back: the bytes of a character that is not complete yet, and text that may turn out to begin a
stop string. Both are delivered at the end. Invalid bytes become U+FFFD exactly as `bytes.decode(errors="replace")`
writes them, wherever the tokens' borders fall.

The end by stop strings is a function of the text alone, not of how it was cut into tokens or steps:

    Reading character by character, the first position at which any stop string is complete ends the text. Of several
    complete there, the longest (the one that starts first) is the match. The text is cut before it, or after it when
    stop strings are included. Where the request wants a number of tokens first, reading begins behind them.

So no stop string is ever in the text shown, unless asked for at its end. Special tokens are not shown, but a stop
string that spells one meets it all the same: it is looked for in the text and these tokens, each a character of its own
that no text can hold. Each stop string is followed by Knuth,
Morris and Pratt's automaton ("Fast pattern matching in strings", 1977), its table built no further than the text has
matched: the work is bounded by the generated characters times the stop strings, however long they are.

Knows no asyncio, and no reasons to end but stop strings and the request's end tokens, whose spelling is not shown.
"""

import codecs
from collections.abc import Sequence
from dataclasses import dataclass

from server.vocabulary import Vocabulary


@dataclass(frozen=True, slots=True, kw_only=True)
class StopRule:
    """What is not shown of a text.

    Attributes:
        strings: stop strings, none empty.
        include: whether the stop string or end token that ends the text is shown.
        end_tokens: ids that end the request: counted, their spelling not shown.
        min_tokens: stop strings are looked for in the text after that many tokens; they do not begin before.
    """

    strings: tuple[str, ...] = ()
    include: bool = False
    end_tokens: frozenset[int] = frozenset()
    min_tokens: int = 0


@dataclass(frozen=True, slots=True)
class Delta:
    """What a step adds to a choice.

    Attributes:
        text: to send now; often empty.
        offsets: for each token that counts, how many characters of the choice's text were complete before it. Tokens
            after the one that completed a stop string do not count.
        stop: the stop string that ended the text; None while it goes on.
    """

    text: str = ""
    offsets: tuple[int, ...] = ()
    stop: str | None = None

    @property
    def counted(self) -> int:
        """How many of the pushed tokens count."""
        return len(self.offsets)


class TextStream:
    """The text of one choice, made as its tokens arrive."""

    def __init__(self, vocabulary: Vocabulary, rule: StopRule) -> None:
        self._vocabulary = vocabulary
        self._rule = rule
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")
        self._marks: dict[int, str] = {}
        spelled = [(string, "".join(map(self._mark, vocabulary.split(string)))) for string in rule.strings]
        self._matchers = [_Matcher(string, string, skips=bool(self._marks)) for string in rule.strings]
        self._matchers += [_Matcher(string, marked, skips=False) for string, marked in spelled if marked != string]
        self._unseen = dict.fromkeys(map(ord, (*self._marks.values(), OTHER_MARK))) if self._marks else {}
        self._tokens = 0
        self._held = ""
        self._length = 0
        self._stop: str | None = None

    def push(self, tokens: Sequence[int]) -> Delta:
        """Take the tokens of one step, in order; after a stop string they are neither shown nor counted."""
        text: list[str] = []
        offsets: list[int] = []
        for token in tokens:
            if self._stop is not None:
                break
            offsets.append(self._length)
            self._tokens += 1
            text.append(self._advance(self._read(token)))
        return Delta("".join(text), tuple(offsets), self._stop)

    def finish(self) -> Delta:
        """Deliver what is held back: no more tokens come. After a stop string there is nothing left."""
        if self._stop is not None:
            return Delta(stop=self._stop)
        text = self._advance(self._decoder.decode(b"", final=True))
        text, self._held = text + self._shown(self._held), ""
        return Delta(text, stop=self._stop)

    def _read(self, token: int) -> str:
        """The characters that a token completes, or its mark where it is special and special ones are looked for."""
        if self._marks and self._vocabulary.is_special(token):
            return self._marks.get(token, OTHER_MARK)
        hidden = token in self._rule.end_tokens and not self._rule.include
        return self._decoder.decode(b"" if hidden else self._vocabulary.bytes_of(token))

    def _mark(self, part: str | int) -> str:
        """A stop string's text, or the lone surrogate that stands for a special token in it."""
        if isinstance(part, str):
            return part
        return self._marks.setdefault(part, chr(FIRST_MARK + len(self._marks)))

    def _shown(self, text: str) -> str:
        return text.translate(self._unseen) if self._unseen else text

    def _advance(self, new: str) -> str:
        """Take new characters; return the text that no stop string can take back any more."""
        self._length += len(self._shown(new))
        if not self._matchers or self._tokens <= self._rule.min_tokens:
            return self._shown(new)
        text = self._held + new
        for end, char in enumerate(new, start=len(self._held) + 1):
            met = [matcher for matcher in self._matchers if matcher.feed(char)]
            if met:
                return self._end(text[:end], met)
        keep = min(matcher.start(text) for matcher in self._matchers)
        self._held = text[keep:]
        return self._shown(text[:keep])

    def _end(self, text: str, met: Sequence["_Matcher"]) -> str:
        first = min(met, key=lambda matcher: matcher.start(text))
        self._stop, self._held = first.string, ""
        return self._shown(text[: first.start(text)]) + (first.string if self._rule.include else "")


FIRST_MARK = 0xD800
"""The first surrogate: decoded text has none, and neither has a stop string."""

OTHER_MARK = "\udfff"
"""Stands for the special tokens that no stop string spells."""


class _Matcher:
    """Follows one stop string through a text.

    Args:
        string: the stop string.
        pattern: what to look for: the string itself, or with marks for the special tokens in it.
        skips: whether marks in the text are passed over.

    Attributes:
        matched: the length of the longest proper beginning of the pattern that the text read so far ends with.
    """

    def __init__(self, string: str, pattern: str, *, skips: bool) -> None:
        self.string = string
        self.matched = 0
        self._pattern = pattern
        self._skips = skips
        self._border = [0]  # _border[k - 1]: the longest proper border of pattern[:k]

    def feed(self, char: str) -> bool:
        """Read one character; True where it completes the pattern, after which there is nothing more to read."""
        if self._skips and _is_mark(char):
            return False
        while self.matched and self._pattern[self.matched] != char:
            self.matched = self._border[self.matched - 1]
        if self._pattern[self.matched] == char:
            self.matched += 1
            if self.matched > len(self._border):
                self._border.append(self._next_border(char))
        return self.matched == len(self._pattern)

    def start(self, text: str) -> int:
        """Where in the text read so far, or in its end, what is matched begins."""
        if not self._skips:
            return len(text) - self.matched
        at, left = len(text), self.matched
        while left:
            at -= 1
            left -= not _is_mark(text[at])
        return at

    def _next_border(self, char: str) -> int:
        border = self._border[-1]
        while border and self._pattern[border] != char:
            border = self._border[border - 1]
        return border + (self._pattern[border] == char)


def _is_mark(char: str) -> bool:
    return FIRST_MARK <= ord(char) < 0xE000
