"""Writes log lines for as long as somebody reads them. Knows no line's form.

A pipe that nobody reads is full after some hundred lines, and a write to it would then wait for ever: the event loop's,
and with it every request's. Lines that would wait are dropped instead, and counted.
"""

import io
import logging
import os
import select
from contextlib import suppress
from typing import TextIO


class UnblockingHandler(logging.StreamHandler[TextIO]):
    """A stream handler that never waits.

    Args:
        stream: a file, a terminal, a pipe or a socket; one without a file descriptor is always written to.
    """

    def __init__(self, stream: TextIO) -> None:
        super().__init__(stream)
        self._dropped = 0
        self._torn = False  # a line that was begun and not ended
        self._fileno: int | None = None
        try:
            self._fileno = stream.fileno()
        except io.UnsupportedOperation:
            return
        self._poll = select.poll()
        self._poll.register(self._fileno, select.POLLOUT)

    def emit(self, record: logging.LogRecord) -> None:
        """Write a record, after word of those that were dropped before it. The caller holds the handler's lock."""
        try:
            self._tell_of_dropped()
            if self._dropped or not self._write(self.format(record)):
                self._dropped += 1
        except Exception:
            self.handleError(record)

    def close(self) -> None:
        """Say what was dropped at the end."""
        with suppress(ValueError):  # the stream is closed
            self._tell_of_dropped()
        super().close()

    def _tell_of_dropped(self) -> None:
        if self._dropped and self._write(self.format(_word_of(self._dropped))):
            self._dropped = 0

    def _write(self, line: str) -> bool:
        """Write a line as far as that needs no waiting; whether all of it was written."""
        text = "\n" * self._torn + line + self.terminator
        if self._fileno is None:
            self.stream.write(text)
            return True
        rest = memoryview(text.encode(errors="backslashreplace"))
        while rest:
            if not self._writable():
                return False
            try:
                written = os.write(self._fileno, rest[: select.PIPE_BUF])
            except BrokenPipeError:  # nobody will ever read
                return False
            rest = rest[written:]
            self._torn = len(rest) > 0
        return True

    def _writable(self) -> bool:
        """Whether the stream takes PIPE_BUF bytes at once."""
        return any(events & select.POLLOUT for _, events in self._poll.poll(0))


def _word_of(dropped: int) -> logging.LogRecord:
    message = "log lines were dropped, since nobody read them"
    facts = {"name": "paceline.server", "msg": message, "levelno": logging.WARNING, "levelname": "WARNING"}
    return logging.makeLogRecord(facts | {"facts": {"dropped": dropped}})
