"""Requests in their KV slots: who starts where, what is left behind, who makes way. Knows no plans' insides, no clocks.

What the slots hold together is within the budget before the model runs, not after.
"""

from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence

from scheduler.coming import WORTH, Coming
from scheduler.config import EngineConfig
from scheduler.model.protocol import Model
from scheduler.order import Order
from scheduler.placing import Place, Placing
from scheduler.plan import Pending, StepPlan
from scheduler.request import Phase, Request
from scheduler.slots import Prefix, SlotPool


class Tenants:
    """The slots of a model and the requests in them."""

    def __init__(self, model: Model, config: EngineConfig, order: Order) -> None:
        self._model = model
        self._order = order
        self._reuse = config.prefix_reuse
        self._pool = SlotPool(config.slots, config.budget)
        self._places: dict[str, Place] = {}

    @property
    def running(self) -> int:
        """How many slots are owned."""
        return self._pool.used

    @property
    def cached(self) -> int:
        """How many tokens' memory the requests hold."""
        return self._pool.spent - self._pool.reusable

    @property
    def reusable(self) -> int:
        """How much more is held for those who may come."""
        return self._pool.reusable

    def pending(self, r: Request) -> Pending:
        """A running request as planning sees it."""
        assert r.slot is not None, f"{r.id} runs without a slot"
        return self._pending(r, r.slot, r.computed, self._pool.held(r.slot), waits=False)

    def candidates(self, waiting: Iterable[Request], running: Sequence[Request], promised: int) -> Iterator[Pending]:
        """The waiting requests that have a place, in their order, up to the first that has none.

        Those that wait for a prompt that is being computed are passed over, as many as there are slots.
        `promised` are the tokens that the running ones have or will have when they have caught up.
        """
        self._places.clear()
        placing = Placing(self._pool, [p for r in running if (p := self._prefix(r)) is not None], promised)
        coming, passed = Coming(), 0
        for r in running:
            coming.add(r.ids, self._salt(r), self._order.turn(r), r.computed)
        for r in waiting:
            salt, turn = None if r.unscored else self._salt(r), self._order.turn(r)
            match = placing.match(r.ids, salt)
            if coming.shared(r.ids, salt, turn) - match.given >= WORTH:
                passed += 1
                if passed == self._pool.count:
                    return
                continue
            place = placing.place(match, len(r.ids) + 1, len(r.prompt) + r.params.max_tokens)
            if place is None:
                return
            self._places[r.id] = place
            coming.add(r.ids, salt, turn, 0 if place.takes_over else place.given)
            held = self._pool.held(place.slot) if place.takes_over else place.keep
            yield self._pending(r, place.slot, place.given, held, waits=True)

    def settle(self, plan: StepPlan, requests: Mapping[str, Request]) -> None:
        """Make room for a plan, and move in whom it admits."""
        places = {id_: self._places[id_] for id_ in plan.admitted}
        spared = {p.source for p in places.values() if p.source is not None}
        kept = {prefix.slot for prefix in self._pool.kept}
        for place in places.values():
            if place.slot in kept and not place.takes_over:
                self._forget(place.slot, place.keep)
        growth = sum(max(s.start + s.count - self._pool.held(s.slot), 0) for s in plan.slices)
        for slot in self._pool.surplus(growth, spared):
            self._forget(slot)
        for id_, place in places.items():
            self._move_in(requests[id_], place)
        for s in plan.slices:
            self._pool.hold(s.slot, s.start + s.count)

    def leave(self, r: Request, *, keep: bool) -> None:
        """Take a request's slot back; `keep` what others may reuse of it."""
        assert r.slot is not None, f"{r.id} has no slot"
        prefix = self._prefix(r) if keep else None
        self._pool.give_back(r.slot, r.id, prefix)
        if prefix is None:
            self._model.release(r.slot)
        r.slot = None

    def keep_only(self, salts: Collection[str]) -> None:
        """Forget what others may reuse, but for these."""
        for prefix in self._pool.kept:
            if prefix.salt not in salts:
                self._forget(prefix.slot)

    def check(self, requests: Iterable[Request]) -> None:
        """Raise AssertionError where the slots' books and the requests' differ, or the budget is exceeded."""
        owners, computed = dict[int, str](), dict[int, int]()
        for r in requests:
            assert (r.slot is None) == (r.phase is Phase.WAITING), r
            if r.slot is not None:
                owners[r.slot], computed[r.slot] = r.id, r.computed
        self._pool.check(owners, computed)

    def _pending(self, r: Request, slot: int, computed: int, held: int, *, waits: bool) -> Pending:
        return Pending(
            id=r.id,
            slot=slot,
            computed=computed,
            rows=len(r.ids) - computed,
            generated=r.generated > 0,
            waits=waits,
            held=held,
            turn=self._order.turn(r),
            scored_rows=r.unscored,
            draws=r.params.max_tokens > 0,
        )

    def _move_in(self, r: Request, place: Place) -> None:
        if place.source is not None:
            if place.source in {prefix.slot for prefix in self._pool.kept}:
                self._pool.touch(place.source)
            self._model.copy(place.source, place.slot, place.given)
        self._pool.take(place.slot, r.id)
        r.start(place.slot, place.given)
        self._order.started(r)

    def _forget(self, slot: int, keep: int = 0) -> None:
        self._pool.forget(slot, keep)
        self._model.release(slot, keep)

    def _prefix(self, r: Request) -> Prefix | None:
        """What others may share of a request: all that is computed, its own tokens too."""
        salt = self._salt(r)
        if salt is None or r.slot is None or not r.computed:
            return None
        return Prefix(r.slot, salt, r.ids[: r.computed])

    def _salt(self, r: Request) -> str | None:
        """Who may share with it: without reuse only siblings, whose name is theirs alone."""
        return r.salt if self._reuse else r.siblings or None
