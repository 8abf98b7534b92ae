"""The project's targets, as ratios within one report, and how far each is met. Pure.

Ratios, because absolute figures move from run to run and from machine to machine. A target whose figures were not
measured is not listed.
"""

from collections.abc import Iterator, Mapping

import msgspec

from server.bench.figures import Figures
from server.bench.options import PEERS

FURTHER_TOKENS = 2048
"""The length of the further request whose memory is asked for."""

Medians = Mapping[tuple[str, int], Figures]


class Target(msgspec.Struct, frozen=True):
    """A figure and its bound; `least` says whether the bound is a least or a most."""

    what: str
    value: float
    bound: float
    least: bool = True
    unit: str = ""

    @property
    def met(self) -> bool:
        """Whether the value keeps the bound."""
        return self.value >= self.bound if self.least else self.value <= self.bound

    @property
    def verdict(self) -> str:
        """`met`, or by how much of the bound it is missed."""
        return "met" if self.met else f"missed by {abs(self.value / self.bound - 1):.0%}"


def serving_targets(medians: Medians) -> list[Target]:
    """Against the peers, against itself alone, and what HTTP costs."""
    return [*_against_peers(medians), *_against_one(medians)]


def _against_peers(medians: Medians) -> Iterator[Target]:
    for count in sorted({count for _, count in medians}):
        ours = medians.get(("paceline", count))
        peers = {name: medians[name, count].rate for name in PEERS if (name, count) in medians}
        if ours is not None and peers:
            best = max(peers, key=lambda name: peers[name])
            bound = 1.25 if count == 1 else 1.5
            what = f"tokens/s over HTTP at {count} against the best peer, {best}"
            yield Target(what, ours.rate / peers[best], bound)


def _against_one(medians: Medians) -> Iterator[Target]:
    for what, above, below, bound in (
        ("tokens/s of 32 requests over HTTP against one", ("paceline", 32), ("paceline", 1), 12.0),
        ("tokens/s over HTTP at 32 against one Generator per request", ("paceline", 32), ("og-threads", 32), 14.0),
        ("tokens/s over HTTP at 32 against the engine alone", ("paceline", 32), ("engine", 32), 0.95),
    ):
        if above in medians and below in medians:
            yield Target(what, medians[above].rate / medians[below].rate, bound)


def shape_targets(medians: Medians, growth: float, cache: float) -> list[Target]:
    """What sharing a step costs, and what a further request does.

    Args:
        medians: of the engine.
        growth: bytes of a further request of FURTHER_TOKENS.
        cache: bytes of its keys and values.
    """
    targets = []
    for what, count, figure, bound in (
        ("time of 4 equal requests against one", 4, "seconds", 1.15),
        ("decode step of 16 rows against one", 16, "step", 1.7),
        ("decode step of 32 rows against one", 32, "step", 2.2),
    ):
        if ("engine", count) in medians and ("engine", 1) in medians:
            many, one = (getattr(medians["engine", n], figure) for n in (count, 1))
            if many and one:
                targets.append(Target(what, many / one, bound, least=False))
    what = f"memory of a further request of {FURTHER_TOKENS} tokens"
    targets.append(Target(what, growth / 1e9, cache * 1.05 / 1e9, least=False, unit="GB"))
    return targets
