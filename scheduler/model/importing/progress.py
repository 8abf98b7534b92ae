"""How an import tells what it is doing.

It knows stages and amounts; bars, terminals and logs belong to whoever implements `Progress`.
"""

from typing import Protocol


class Progress(Protocol):
    """Told of one stage at a time: `start`, any number of `advance`, then `done`."""

    def start(self, label: str, total: int | None) -> None:
        """Begin a stage of `total` units (bytes or tensors), None where the end is not known."""

    def advance(self, amount: int) -> None:
        """Report `amount` more units of the stage."""

    def done(self) -> None:
        """End the stage."""


class Silent:
    """Progress that nobody watches."""

    def start(self, label: str, total: int | None) -> None:
        """Ignore."""

    def advance(self, amount: int) -> None:
        """Ignore."""

    def done(self) -> None:
        """Ignore."""
