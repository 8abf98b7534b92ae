"""One form for every log line, whoever writes it: text for people, JSON for machines. Knows no request.

Parts have levels of their own: `requests`, `server`, `model` are this server's, `uvicorn` the HTTP server's;
every other library is heard from `warning` on. A traceback shows no variables: they may hold somebody's text.
What a client sent can end no line.
"""

import logging
import sys
from collections.abc import Sequence
from typing import TextIO

import structlog
from structlog.tracebacks import ExceptionDictTransformer
from structlog.typing import EventDict, Processor, WrappedLogger

from server.log_handler import UnblockingHandler
from server.log_lines import all_printable, indented_traceback, json_line
from server.record import CURRENT

PARTS = {
    "requests": ("paceline.requests",),
    "server": ("paceline",),
    "model": ("scheduler",),
    "uvicorn": ("uvicorn",),
    "libraries": ("",),
}
"""The loggers of each part; the root's is the libraries'."""


def configure(level: str, form: str, parts: Sequence[str] = (), stream: TextIO | None = None) -> None:
    """Send every logger of the process to a stream.

    Args:
        level: of this server's parts, unless they are given one.
        form: `text` or `json`.
        parts: `part=level`, checked already.
        stream: where to; by default stderr.
    """
    stream = stream or sys.stderr
    handler = UnblockingHandler(stream)
    handler.setFormatter(
        structlog.stdlib.ProcessorFormatter(
            foreign_pre_chain=[
                structlog.stdlib.add_log_level,
                _facts,
                _request_id,
                structlog.processors.TimeStamper(fmt="iso" if form == "json" else "%H:%M:%S", utc=form == "json"),
            ],
            processors=_processors(form, stream),
        )
    )
    logging.basicConfig(handlers=[handler], force=True)
    logging.captureWarnings(capture=True)
    levels = {"requests": level, "server": level, "model": level, "uvicorn": "warning", "libraries": "warning"}
    levels |= dict(part.split("=", 1) for part in parts)
    for part, value in levels.items():
        for name in PARTS[part]:
            logging.getLogger(name).setLevel(value.upper())


def _processors(form: str, stream: TextIO) -> list[Processor]:
    drop = structlog.stdlib.ProcessorFormatter.remove_processors_meta
    if form == "json":
        trace = structlog.processors.ExceptionRenderer(ExceptionDictTransformer(show_locals=False))
        return [_part, drop, trace, structlog.processors.JSONRenderer(serializer=json_line)]
    console = structlog.dev.ConsoleRenderer(
        colors=stream.isatty(), pad_event_to=0, sort_keys=False, exception_formatter=indented_traceback
    )
    return [_part, drop, all_printable, console]


def _facts(_: WrappedLogger, __: str, facts: EventDict) -> EventDict:
    """Add what a call gave as `extra={"facts": {...}}`."""
    facts.update(getattr(facts["_record"], "facts", {}))
    return facts


def _request_id(_: WrappedLogger, __: str, facts: EventDict) -> EventDict:
    """Add the id of the request that the task works for."""
    record = CURRENT.get()
    if record is not None:
        facts.setdefault("request_id", record.id)
    return facts


def _part(_: WrappedLogger, __: str, facts: EventDict) -> EventDict:
    """Add the logger's name, for lines that are not this server's own plain words."""
    facts["logger"] = facts["_record"].name
    return facts
