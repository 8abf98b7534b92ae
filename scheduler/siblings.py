"""Requests with one prompt (`n` choices of one reply): computed once, copied to the others. Knows no model, no slots.

The first to run computes the prompt; the others wait until the part that can be shared is in its cache. The last two
tokens are never shared: computed again as a chunk of two rows they give each sibling the very logits that it would
get alone, where a single row would run another kernel, whose last bits differ. The last one to run hands its slot on to
the next that waits.
"""

from collections.abc import Iterable, Iterator

from scheduler.plan import Pending
from scheduler.request import Phase, Request

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
        waits = request.siblings in computing and not request.unscored and shared(request, running) is None
        if request.siblings and waits:
            continue
        yield request
        computing.add(request.siblings)


def heir_of(ended: Request, others: Iterable[Request]) -> Request | None:
    """The waiting sibling to whom the slot of one that ends shall go; None where another can share the prompt, too."""
    if not ended.siblings or not 0 < shareable(ended) <= ended.computed:
        return None
    siblings = [r for r in others if r.siblings == ended.siblings]
    if any(r.phase is Phase.RUNNING and r.computed >= shareable(r) for r in siblings):
        return None
    return next((r for r in siblings if r.phase is Phase.WAITING and not r.unscored), None)


def pending(r: Request, given: tuple[Request, int] | None = None) -> Pending:
    """The request as planning sees it; `given` is what it will have of a sibling's."""
    computed = given[1] if given else r.computed
    prompt_rows = max(len(r.prompt) - computed, 0)
    replay_rows = len(r.tokens) - computed - prompt_rows
    return Pending(r.id, r.slot, computed, prompt_rows, replay_rows, r.unscored, r.params.max_tokens > 0)
