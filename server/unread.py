"""Ends a connection whose client takes nothing of what is written for it. Knows no HTTP.

A slow client keeps its connection for as long as it reads at all: what counts is whether less is left to be sent.
"""

import asyncio


class Unread:
    """Watches a connection while its transport has more to send than it likes.

    Args:
        seconds: without a byte taken, after which the connection is cut.
    """

    def __init__(self, transport: asyncio.Transport, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._transport = transport
        self._loop = loop
        self._seconds = seconds
        self._left = 0
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """There is much to send from now on."""
        self.end()
        self._left = self._transport.get_write_buffer_size()
        self._timer = self._loop.call_later(self._seconds, self._look)

    def end(self) -> None:
        """There is no more of it, or no connection."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _look(self) -> None:
        if self._transport.get_write_buffer_size() < self._left:
            self.begin()
        else:
            self._transport.abort()  # closing would wait for the client
