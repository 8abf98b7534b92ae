"""The large values of a body, decoded a piece at a time. Knows no field.

One call of the decoder keeps every other thread waiting, the event loop's and the scheduler's; its pieces are what
takes a few milliseconds.
"""

import re
from collections.abc import Callable
from typing import Any

from server.errors import BadRequest
from server.json_pieces import TooMany, check, pieces
from server.unknown import Unknowns

LARGE = 2**17
"""Bytes up to which a value is decoded at once."""

MOST_VALUES = 400_000
"""Values that one piece may hold: some items of a list, or a whole field where that is none."""

MOST_ITEMS = 2**20
"""Items of a list."""

Decode = Callable[[bytes], Any]


def decode_large(text: bytes, name: str, decode: Decode, unknowns: Unknowns, *, long_list: bool) -> Any:  # noqa: ANN401
    """The value of a field, or BadRequest.

    Args:
        text: valid JSON.
        name: the field's.
        decode: makes the field's value of a text, or of a list with some of its items the list of these.
        unknowns: what `decode` tells of undeclared names.
        long_list: whether the field may be a list of any length.
    """
    text = text.strip()
    if text.startswith(b'"'):
        return decode(text)
    try:
        if long_list and text.startswith(b"["):
            return _decode_list(text, name, decode, unknowns)
        check(text, MOST_VALUES)
    except TooMany as error:
        said = f"{name} holds more values than are taken at once, some {MOST_VALUES:,}; send less at a time."
        raise BadRequest(said, param=name) from error
    return decode(text)


def _decode_list(text: bytes, name: str, decode: Decode, unknowns: Unknowns) -> list[Any]:
    items: list[Any] = []
    for piece in pieces(text, LARGE, MOST_VALUES):
        items += _decode_items(piece, name, decode, unknowns, len(items))
        if len(items) > MOST_ITEMS:
            raise TooMany
    return items


def _decode_items(piece: bytes, name: str, decode: Decode, unknowns: Unknowns, before: int) -> list[Any]:
    """The items of a piece; what is said of one counts those before the piece as well."""
    told: list[BadRequest] = []

    def placed(error: BadRequest) -> BadRequest:
        told.append(_counted_on(error, name, before))
        return told[-1]

    try:
        with unknowns.within(placed):
            found = decode(piece)
    except BadRequest as error:
        if error in told:
            raise
        raise _counted_on(error, name, before) from error
    assert isinstance(found, list)
    return found


def _counted_on(error: BadRequest, name: str, before: int) -> BadRequest:
    if not before:
        return error
    first = re.compile(rf"\b{re.escape(name)}\[(\d+)\]")

    def counted(text: str) -> str:
        return first.sub(lambda place: f"{name}[{int(place[1]) + before}]", text)

    return BadRequest(counted(error.message), param=counted(error.param or name), code=error.code)
