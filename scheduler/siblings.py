"""Requests with one prompt (`n` choices of one reply): computed once, copied to the others. Knows no model, no slots.

The first to run computes the prompt; the others wait until the part that can be shared is in its cache, where they
find it like any other prefix.
"""

from collections.abc import Iterable, Iterator

from scheduler.placing import OWN_ROWS
from scheduler.request import Phase, Request


def shareable(request: Request) -> int:
    """How many tokens of the prompt a sibling may be given."""
    return max(len(request.prompt) - OWN_ROWS, 0)


def unheld(waiting: Iterable[Request], running: Iterable[Request]) -> Iterator[Request]:
    """The waiting requests, in their order, without those that shall wait for a sibling's prompt."""
    running = list(running)
    ready = {r.siblings for r in running if r.computed >= shareable(r)}
    computing = {r.siblings for r in running} - ready
    for request in waiting:
        if request.siblings in computing and request.siblings and not request.unscored:
            continue
        yield request
        if request.siblings not in ready:
            computing.add(request.siblings)


def awaited(requests: Iterable[Request]) -> set[str]:
    """The names of those of whom some wait for what others have computed."""
    return {r.siblings for r in requests if r.siblings and r.phase is Phase.WAITING and not r.unscored}
