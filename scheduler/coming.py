"""Prompts that begin alike and are there at once: what they share is computed once. Knows no model, no slot's owner.

The first of them to run computes it; whoever would save enough by that waits until it is in the cache, and finds it
there like any other prefix. Nobody waits for a prompt whose turn is later than its own.
"""

from collections.abc import Iterable
from dataclasses import dataclass

from scheduler.placing import OWN_ROWS
from scheduler.request import Phase, Request
from scheduler.tokens import TokenIds, common

WORTH = 32
"""Rows that have to be saved by waiting: about as many as a step costs where it computes nothing."""


@dataclass(frozen=True, slots=True, eq=False)
class _Prompt:
    salt: str
    tokens: TokenIds
    turn: tuple[float, ...]


class Coming:
    """The prompts that will be in the cache soon."""

    def __init__(self) -> None:
        self._prompts: list[_Prompt] = []

    def add(self, tokens: TokenIds, salt: str | None, turn: tuple[float, ...], there: int) -> None:
        """A prompt [tokens], of which so many are there for all already; without a salt nobody shares it."""
        if salt is not None and len(tokens) - there >= WORTH:
            self._prompts.append(_Prompt(salt, tokens, turn))

    def shared(self, tokens: TokenIds, salt: str | None, turn: tuple[float, ...]) -> int:
        """How much of a prompt [tokens] will be there, if it waits for one of these."""
        alike = [common(p.tokens, tokens) for p in self._prompts if p.salt == salt and p.turn <= turn]
        return min(max(alike, default=0), len(tokens) - OWN_ROWS)


def awaited(requests: Iterable[Request]) -> set[str]:
    """The names of the siblings of whom some wait for what others have computed."""
    return {r.siblings for r in requests if r.siblings and r.phase is Phase.WAITING and not r.unscored}
