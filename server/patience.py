"""How long a client may take to send a request: moments in, a deadline out. Pure; knows no connection.

Moments are seconds of one clock, whichever.
"""

RATE = 500
"""Bytes a second below which a request takes too long as a whole, however steadily it trickles; Apache's figure."""


class Patience:
    """With one request at a time, from its first moment to its last byte.

    Args:
        seconds: a pause of that length is too long; a request as a whole has as long, and a second more for each
            `RATE` bytes of it that came.
    """

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._begun = self._heard = 0.0
        self.received = 0  # bytes of the request so far
        self.awaiting = False  # whether more of a request is to come

    def begin(self, now: float) -> None:
        """A request is expected from now on."""
        self._begun = self._heard = now
        self.received = 0
        self.awaiting = True

    def heard(self, size: int, now: float) -> None:
        """Some bytes of it came."""
        self.received += size
        self._heard = now

    def excuse(self, now: float) -> None:
        """The time until now was not the client's fault."""
        self._begun += now - self._heard
        self._heard = now

    def end(self) -> None:
        """All of it came."""
        self.awaiting = False

    @property
    def deadline(self) -> float:
        """When it took too long, unless more comes before."""
        return min(self._heard + self._seconds, self._begun + self._seconds + self.received / RATE)
