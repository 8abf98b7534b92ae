"""Requests with one prompt (`n` choices of one reply): computed once, copied to the others. Knows no model, no slots.

The first to run computes the prompt; the others wait until the part that can be shared is in its cache. The last two
tokens are never shared: computed again as a chunk of two rows they give each sibling the very logits that it would
get alone, where a single row would run another kernel, whose last bits differ. Where no sibling runs any more, the
next one computes the prompt anew.
"""

from collections.abc import Iterable, Iterator

from scheduler.request import Request

OWN_ROWS = 2
"""Prompt tokens that every sibling computes itself."""


def shareable(request: Request) -> int:
    """How many tokens of the prompt a sibling may be given."""
    return max(len(request.prompt) - OWN_ROWS, 0)


def shared(request: Request, running: Iterable[Request]) -> tuple[Request, int] | None:
    """Who can give a request that has computed nothing a part of its prompt, and how many tokens."""
    count = shareable(request)
    if not request.siblings or request.unscored or count == 0:
        return None
    for other in running:
        if other.siblings == request.siblings and other.computed >= count:
            return other, count
    return None


def unheld(waiting: Iterable[Request], running: Iterable[Request]) -> Iterator[Request]:
    """The waiting requests, in their order, without those that shall wait for a sibling's prompt."""
    running = list(running)
    computing = {r.siblings for r in running if r.computed < shareable(r)}
    for request in waiting:
        if request.siblings in computing and not request.unscored and shared(request, running) is None:
            continue
        yield request
        if request.siblings and shared(request, running) is None:
            computing.add(request.siblings)
