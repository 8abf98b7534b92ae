"""Text that may hold anything, as it can stand in a log line. Pure; knows no logger.

What a client sends must neither end a line, so that the rest looks like one of the server's, nor steer a terminal.
"""

import json
import traceback
from typing import TextIO

import msgspec
from structlog.typing import EventDict, ExcInfo, WrappedLogger


def printable(text: str) -> str:
    """The text with whatever does not print (ends of lines, control, format and lone surrogates) as escapes."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def all_printable(_: WrappedLogger, __: str, facts: EventDict) -> EventDict:
    """Every text of a line, for structlog."""
    return {name: printable(value) if isinstance(value, str) else value for name, value in facts.items()}


def json_line(facts: EventDict, **_: object) -> str:
    """The line as a JSON object, in which what does not print is escaped as well."""
    try:
        text = msgspec.json.encode(facts, enc_hook=str).decode()
    except UnicodeEncodeError:  # a lone surrogate
        return json.dumps(facts, default=str)
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else json.dumps(char)[1:-1] for char in text)


def indented_traceback(to: TextIO, error: ExcInfo) -> None:
    """Write a traceback whose lines cannot be taken for lines of the log, whatever its message says."""
    for line in "".join(traceback.format_exception(*error)).rstrip("\n").split("\n"):
        to.write(f"\n    {printable(line)}")
