"""Memory of further requests: how much the process grows for each token that comes into its cache.

`main` is the inside of a process of its own. Its first request brings everything that a first request brings; then two
further ones join it, and stay in flight while the process is measured.
"""

import os
import sys

import msgspec

from scheduler.engine import PackedEngine, StepReport
from server.bench.child import Setup, private_output
from server.bench.contenders.engine import check, open_engine, request
from server.bench.memory import memory

FURTHER = 2
SLACK = 256
"""Tokens that the first requests may generate while the later ones are prefilled."""


class Growth(msgspec.Struct, frozen=True):
    """Anonymous bytes by which the process grew, and the tokens that came into its cache meanwhile."""

    size: int
    tokens: int

    def of(self, tokens: int) -> float:
        """The bytes of that many tokens."""
        return self.size / self.tokens * tokens


def main() -> None:
    """Measure, answer with a Growth, and end."""
    answers = private_output()
    setup = msgspec.json.decode(sys.stdin.buffer.readline(), type=Setup)
    growth = measure(open_engine(setup), setup.context - SLACK)
    answers.write(msgspec.json.encode(growth) + b"\n")


def measure(engine: PackedEngine, length: int) -> Growth:
    """Fill the cache with requests of that length, one after the other."""
    first = _join(engine, "first", length)
    before = memory(os.getpid())[1]
    for number in range(FURTHER):
        last = _join(engine, str(number), length)
    after = memory(os.getpid())[1]
    return Growth(after - before, last.cached_tokens - first.cached_tokens)


def _join(engine: PackedEngine, id_: str, length: int) -> StepReport:
    """Prefill one more request, and let all decode a few tokens; the last step's report."""
    engine.add(request(id_, [1 + n % 97 for n in range(length)], SLACK))
    prefilled = False
    while not prefilled:
        report = engine.step()
        check(report)
        prefilled = any(event.id == id_ for event in report.events)
    for _ in range(2):
        report = engine.step()
        check(report)
    return report
