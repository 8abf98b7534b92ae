"""What is known of one HTTP request while it lasts: who asked, and what its generations came to. Knows no asyncio.

The record travels in a context variable, so that whoever logs or submits on behalf of a request finds it.
"""

from contextvars import ContextVar
from dataclasses import dataclass, field
from time import perf_counter

from scheduler.request import Finish, Summary

FINISHES = {Finish.STOP: "stop", Finish.LENGTH: "length", Finish.CANCELLED: "abort", Finish.FAILED: "error"}
"""How a finish is called in logs and metrics: vLLM's words."""


@dataclass(slots=True, eq=False)
class Record:
    """One HTTP request; moments are seconds of `time.perf_counter`.

    Attributes:
        id: the request's, as in `x-request-id`; its body may give it another while it is read.
        client: the address it came from; a trusted proxy's word counts.
        key: the name of the API key it came with; empty where none is needed.
        traceparent: the W3C trace context it brought, or empty.
        status: of the reply; 0 while none has begun.
        error: the code of the error it was answered with, or empty.
        ended: None while the reply goes on.
        open: ids of its generations that the scheduler has.
        done: how each of the others ended.
    """

    id: str
    method: str
    path: str
    client: str = ""
    key: str = ""
    traceparent: str = ""
    status: int = 0
    error: str = ""
    arrived: float = field(default_factory=perf_counter)
    ended: float | None = None
    open: set[str] = field(default_factory=set)
    done: list[tuple[Finish, Summary]] = field(default_factory=list)

    @property
    def complete(self) -> bool:
        """Whether nothing more will come of it."""
        return self.ended is not None and not self.open

    @property
    def finish(self) -> str:
        """How its generations ended; several ways are joined by a plus sign."""
        return "+".join(sorted({FINISHES[finish] for finish, _ in self.done}))


CURRENT: ContextVar[Record | None] = ContextVar("paceline_record", default=None)
"""The request that the running task works for."""


@dataclass(frozen=True, slots=True)
class Totals:
    """The generations of a request as one: tokens added up, moments from the first to the last.

    Attributes:
        queue: seconds until the first of them had a slot.
        ttft: seconds from arrival to the first token of all; None where none came.
        rate: tokens a second after the first; None with fewer than two.
    """

    prompt: int
    cached: int
    new: int
    queue: float
    ttft: float | None
    rate: float | None


def totals(summaries: list[Summary]) -> Totals:
    """Add up at least one summary."""
    arrived = min(s.arrived for s in summaries)
    speaking = [s for s in summaries if s.new_tokens]
    first = min((s.first_token for s in speaking), default=None)
    new = sum(s.new_tokens for s in speaking)
    later = new - len(speaking)
    seconds = max(s.ended for s in speaking) - first if speaking and first is not None else 0.0
    return Totals(
        prompt=sum(s.prompt_tokens for s in summaries),
        cached=sum(s.cached_tokens for s in summaries),
        new=new,
        queue=min(s.started for s in summaries) - arrived,
        ttft=None if first is None else first - arrived,
        rate=later / seconds if later and seconds > 0 else None,
    )
