"""The engine: requests in, events out, one shared model run a step. Knows no threads and no clocks that sleep."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from operator import attrgetter
from time import perf_counter
from typing import Protocol

from scheduler.batch import pack
from scheduler.coming import awaited
from scheduler.config import EngineConfig
from scheduler.errors import EngineError, RequestFailed, StepFailed
from scheduler.logprobs import TokenLogprobs
from scheduler.model.protocol import Model
from scheduler.order import Order
from scheduler.outcome import Outcome, outcomes, temperatures
from scheduler.pace import Load, Pace, load_of
from scheduler.plan import Pending, Room, Slice, StepPlan, overdrawn, plan
from scheduler.request import Event, Finish, Phase, Request
from scheduler.tenants import Tenants


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step did.

    Attributes:
        events: what leaves the engine, at most one event per request.
        decode_rows: requests that decoded a token.
        prefill_rows: tokens of prompts computed, and of texts that are computed again.
        running: requests that hold a slot after the step.
        waiting: requests in the queue after the step.
        cached_tokens: tokens whose place in the KV cache requests hold after the step.
        reusable_tokens: tokens in the cache that belong to no request, kept for those that begin alike.
        preempted: requests that had to make way.
        model_seconds: the model run's share of step_seconds.
        expected_seconds: what the longest step that is likely would take by what was measured.
        failure: set where the model run raised.
        slices: the plan's, for whoever draws the step: passing them on costs nothing.
    """

    events: tuple[Event, ...] = ()
    decode_rows: int = 0
    prefill_rows: int = 0
    running: int = 0
    waiting: int = 0
    cached_tokens: int = 0
    reusable_tokens: int = 0
    preempted: int = 0
    model_seconds: float = 0.0
    step_seconds: float = 0.0
    expected_seconds: float = 0.0
    failure: EngineError | None = None
    slices: tuple[Slice, ...] = ()


class Engine(Protocol):
    """What the worker drives."""

    @property
    def idle(self) -> bool:
        """Whether a step would do nothing."""

    def add(self, request: Request) -> None:
        """Take a request; raises RequestFailed, without having taken it, where it can never run."""

    def drop(self, id_: str) -> None:
        """End a request as cancelled; unknown and finished ones are ignored, as the two sides may cross."""

    def step(self) -> StepReport:
        """Compute one step and report what came of it."""

    def end_all(self, error: EngineError) -> Sequence[Event]:
        """End every request with the error, for the last word of an engine that cannot go on."""

    def close(self) -> None:
        """Give the model back."""


class PackedEngine:
    """Continuous batching over a packed model, within a budget of tokens.

    Requests are admitted by their present need. Where the budget runs out the youngest makes way and waits for its
    turn again with its tokens kept: they are prefilled anew, its own too, and it goes on bit for bit as if nothing had
    been.
    """

    def __init__(self, model: Model, config: EngineConfig) -> None:
        self._model = model
        self._config = config
        self._order = Order()
        self._pace = Pace()
        self._tenants = Tenants(model, config, self._order)
        self._requests: dict[str, Request] = {}
        self._events: list[Event] = []
        self._preempted = 0
        self._model_seconds = 0.0

    @property
    def idle(self) -> bool:
        """Whether a step would do nothing."""
        return not self._requests and not self._events

    def add(self, request: Request) -> None:
        """Take a request; raises RequestFailed, without having taken it, where it can never run."""
        longest, most = len(request.prompt) + request.params.max_tokens, self._config.longest
        if not request.prompt or longest > most:
            raise RequestFailed(f"{longest} tokens do not fit the {most} that a request may have")
        if request.id in self._requests:
            raise RequestFailed(f"a request with the id {request.id} is in flight")
        if request.params.max_tokens == 0 and not request.unscored:
            self._events.append(request.end(Finish.LENGTH))
        else:
            self._order.join(request)
            self._requests[request.id] = request

    def drop(self, id_: str) -> None:
        """End a request as cancelled; unknown and finished ones are ignored, as the two sides may cross."""
        request = self._requests.get(id_)
        if request is not None:
            self._end(request, Finish.CANCELLED)

    def step(self) -> StepReport:
        """Plan, pack, run, sample, commit. Nothing is visible before commit: a failed run ends what it planned."""
        begin = perf_counter()
        self._model_seconds, self._preempted = 0.0, 0
        step_plan = self._plan(self._advancing())
        failure = None
        if step_plan.slices:
            self._tenants.settle(step_plan, self._requests)
            try:
                self._compute(step_plan)
            except StepFailed as error:
                failure = error
                self._fail(step_plan, error)
        return self._report(step_plan, begin, failure)

    def end_all(self, error: EngineError) -> Sequence[Event]:
        """End every request with the error, for the last word of an engine that cannot go on."""
        for request in list(self._requests.values()):
            self._end(request, Finish.FAILED, error)
        return self._take_events()

    def close(self) -> None:
        """Give the model back."""
        self._model.close()

    def check(self) -> None:
        """Raise AssertionError where the slots' books and the requests' differ, or the budget is exceeded."""
        self._tenants.check(self._requests.values())
        for r in self._requests.values():
            assert 0 <= r.computed < len(r.ids), r

    def _advancing(self) -> list[Pending]:
        """Those that run, after the youngest have made way where not everybody can advance within the budget."""
        running = [self._tenants.pending(r) for r in sorted(self._running(), key=attrgetter("seniority"))]
        leaving = overdrawn(running, self._config.budget)
        for p in leaving:
            request = self._requests[p.id]
            self._tenants.leave(request, keep=False)
            request.preempt()
            self._preempted += 1
        return running[: len(running) - len(leaving)]

    def _plan(self, running: list[Pending]) -> StepPlan:
        rows = self._config.step_rows
        prefill = min(rows, self._pace.rows_beside(running, self._config.target_itl))
        return plan(running, self._candidates(running), Room(rows, prefill, self._config.budget))

    def _candidates(self, pending: list[Pending]) -> Iterable[Pending]:
        """Those that wait and have a place, in their order, beside those that run."""
        waiting = [r for r in self._requests.values() if r.phase is Phase.WAITING]
        if not waiting:
            return ()
        running = [self._requests[p.id] for p in pending]
        promised = sum(p.promised for p in pending)
        waiting.sort(key=self._order.turn)
        return self._tenants.candidates(waiting, running, promised)

    def _most(self) -> Load:
        """The most that a step is likely to compute."""
        running, cached = self._tenants.running, self._tenants.cached
        longest = max((r.computed for r in self._requests.values()), default=0)
        rows = self._config.step_rows
        return Load(running, cached, rows, rows * longest)

    def _running(self) -> list[Request]:
        return [r for r in self._requests.values() if r.phase is Phase.RUNNING]

    def _compute(self, step_plan: StepPlan) -> None:
        batch = pack(step_plan, lambda id_: self._requests[id_].ids)
        wanted = temperatures(batch, self._requests)
        begin = perf_counter()
        output = self._model.run(batch, wanted)
        self._model_seconds = perf_counter() - begin
        self._commit(step_plan, outcomes(batch, output, self._requests))

    def _commit(self, step_plan: StepPlan, found: Iterable[Outcome]) -> None:
        for s in step_plan.slices:
            request = self._requests[s.id]
            request.computed += s.count
            self._order.computed(request, s.count, prefill=not s.decodes, new=s.samples)
        for o in found:
            o.request.scores += o.scores
            tokens = () if o.token is None else (o.token,)
            for token in tokens:
                o.request.append(token)
            if o.finish is not None:
                self._end(o.request, o.finish, o.error, tokens, o.logprobs)
            elif tokens:
                self._events.append(o.request.news(tokens, o.logprobs))

    def _fail(self, step_plan: StepPlan, error: StepFailed) -> None:
        for s in step_plan.slices:
            self._end(self._requests[s.id], Finish.FAILED, error)

    def _end(
        self,
        request: Request,
        finish: Finish,
        error: EngineError | None = None,
        tokens: tuple[int, ...] = (),
        logprobs: tuple[TokenLogprobs, ...] = (),
    ) -> None:
        del self._requests[request.id]
        self._order.leave(request)
        if request.slot is not None:
            self._tenants.leave(request, keep=error is None)
            if not self._config.prefix_reuse:
                self._tenants.keep_only(awaited(self._requests.values()))
        self._events.append(request.end(finish, error, tokens, logprobs))

    def _take_events(self) -> tuple[Event, ...]:
        events = tuple(self._events)
        self._events.clear()
        return events

    def _report(self, step_plan: StepPlan, begin: float, failure: EngineError | None) -> StepReport:
        seconds = perf_counter() - begin
        if step_plan.slices and failure is None:
            self._pace.learn(load_of(step_plan.slices), seconds)
        return StepReport(
            events=self._take_events(),
            decode_rows=step_plan.decode_rows,
            prefill_rows=step_plan.prefill_rows,
            running=self._tenants.running,
            waiting=len(self._requests) - self._tenants.running,
            cached_tokens=self._tenants.cached,
            reusable_tokens=self._tenants.reusable,
            preempted=self._preempted,
            model_seconds=self._model_seconds,
            step_seconds=seconds,
            expected_seconds=self._pace.seconds(self._most()),
            failure=failure,
            slices=step_plan.slices,
        )
