"""Large JSON to pieces that are decoded one by one, since a decoder keeps the interpreter for itself while it works.

The text must be valid JSON. Only its structure is read: strings are skipped over, whatever they hold. Pure.
"""

import re
from collections.abc import Iterator

_MARK = re.compile(rb'["\[\]{}]')
_WINDOW = 2**16  # bytes searched at a time
MOST_MARKS = 2**19
"""Strings and brackets that are gone through, which takes about a second: more are a mistake, or meant to cost."""

_QUOTE, _BACKSLASH = b'"'[0], b"\\"[0]
_OPENING = b"[{"


class TooMany(Exception):
    """A text holds more than it may."""


def pieces(array: bytes, size: int, most: int) -> Iterator[bytes]:
    """An array as arrays of its items in order, each as small as reaches `size` bytes.

    Raises TooMany where one of them holds more than `most` values, wherever they stand in it: as many as commas and
    opening brackets tell; and where all of them hold more than `MOST_MARKS` strings and brackets.
    """
    array = array.strip()
    at = start = 1
    end, depth, values, marks = len(array) - 1, 0, 1, 0
    while at < end:
        found = _MARK.search(array, at, min(at + _WINDOW, end))
        stop = found.start() if found else min(at + _WINDOW, end)
        while depth == 0 and (comma := array.find(b",", max(at, start + size), stop)) >= 0:
            _check(values + array.count(b",", at, comma), most)
            yield b"[%b]" % array[start:comma]
            at = start = comma + 1
            values = 1
        values += array.count(b",", at, stop)
        at = stop
        if found is not None:
            marks += 1
            _check(marks, MOST_MARKS)
            at, step = _behind(array, stop)
            depth += step
            values += step > 0
        _check(values, most)
    yield b"[%b]" % array[start:end]


def check(text: bytes, most: int) -> None:
    """Raise TooMany where a text holds more than `most` values, or more than `MOST_MARKS` strings and brackets."""
    for _ in pieces(b"[%b]" % text, len(text) + 2, most):
        pass


def _check(count: int, most: int) -> None:
    if count > most:
        raise TooMany


def _behind(text: bytes, mark: int) -> tuple[int, int]:
    """The place behind a mark, for a quotation mark the one behind its string, and how much deeper it lies."""
    if text[mark] == _QUOTE:
        return _behind_string(text, mark + 1), 0
    return mark + 1, 1 if text[mark] in _OPENING else -1


def _behind_string(text: bytes, at: int) -> int:
    """The place behind the string that goes on at `at`."""
    while True:
        quote = text.index(b'"', at)
        before = quote
        while before > at and text[before - 1] == _BACKSLASH:
            before -= 1
        at = quote + 1
        if (quote - before) % 2 == 0:
            return at
