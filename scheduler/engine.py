"""The engine: requests in, events out, one shared model run a step. Knows no threads and no clocks that sleep."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from time import perf_counter
from typing import Protocol

from scheduler.batch import pack
from scheduler.config import EngineConfig
from scheduler.errors import EngineError, RequestFailed, StepFailed
from scheduler.logprobs import TokenLogprobs
from scheduler.model.protocol import Model
from scheduler.outcome import Outcome, outcomes
from scheduler.plan import Slice, StepPlan, plan
from scheduler.request import Event, Finish, Phase, Request
from scheduler.siblings import heir_of, pending, shareable, shared, unheld
from scheduler.slots import SlotPool


@dataclass(frozen=True, slots=True)
class StepReport:
    """What one step did.

    Attributes:
        events: what leaves the engine, at most one event per request.
        decode_rows: requests that decoded a token.
        prefill_rows: prompt tokens computed.
        running: requests that hold a slot after the step.
        waiting: requests in the queue after the step.
        cached_tokens: tokens in the KV cache after the step.
        model_seconds: the model run's share of step_seconds.
        failure: set where the model run raised.
        slices: the plan's, for whoever draws the step: passing them on costs nothing.
    """

    events: tuple[Event, ...] = ()
    decode_rows: int = 0
    prefill_rows: int = 0
    running: int = 0
    waiting: int = 0
    cached_tokens: int = 0
    model_seconds: float = 0.0
    step_seconds: float = 0.0
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
    """First come, first served continuous batching over a packed model."""

    def __init__(self, model: Model, config: EngineConfig) -> None:
        self._model = model
        self._config = config
        self._slots = SlotPool(config.slots)
        self._requests: dict[str, Request] = {}  # in order of arrival
        self._events: list[Event] = []
        self._model_seconds = 0.0

    @property
    def idle(self) -> bool:
        """Whether a step would do nothing."""
        return not self._requests and not self._events

    def add(self, request: Request) -> None:
        """Take a request; raises RequestFailed, without having taken it, where it can never run."""
        longest = len(request.prompt) + request.params.max_tokens
        if not request.prompt or longest > self._config.context:
            raise RequestFailed(f"{longest} tokens do not fit the context of {self._config.context}")
        if request.id in self._requests:
            raise RequestFailed(f"a request with the id {request.id} is in flight")
        if request.params.max_tokens == 0 and not request.unscored:
            self._events.append(request.end(Finish.LENGTH))
        else:
            self._requests[request.id] = request

    def drop(self, id_: str) -> None:
        """End a request as cancelled; unknown and finished ones are ignored, as the two sides may cross."""
        request = self._requests.get(id_)
        if request is not None:
            self._end(request, Finish.CANCELLED)

    def step(self) -> StepReport:
        """Plan, pack, run, sample, commit. Nothing is visible before commit: a failed run ends what it planned."""
        begin = perf_counter()
        step_plan = self._plan()
        failure = None
        self._model_seconds = 0.0
        if step_plan.slices:
            self._admit(step_plan)
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
        """Raise AssertionError where the slots' books and the requests' differ."""
        self._slots.check({r.slot: r.id for r in self._requests.values() if r.slot is not None})
        for r in self._requests.values():
            assert (r.slot is None) == (r.phase is Phase.WAITING), r
            assert 0 <= r.computed < len(r.tokens), r

    def _plan(self) -> StepPlan:
        running = self._running()
        waiting = (r for r in self._requests.values() if r.phase is Phase.WAITING)
        admissible = (pending(r, shared(r, running)) for r in unheld(waiting, running))
        return plan([pending(r) for r in running], admissible, self._slots.free(), self._config.step_rows)

    def _running(self) -> list[Request]:
        return [r for r in self._requests.values() if r.phase is Phase.RUNNING]

    def _admit(self, step_plan: StepPlan) -> None:
        admitted, running = set(step_plan.admitted), self._running()
        for s in step_plan.slices:
            if s.id in admitted:
                request = self._requests[s.id]
                self._start(request, s.slot, shared(request, running))

    def _start(self, request: Request, slot: int, given: tuple[Request, int] | None) -> None:
        """Give a waiting request its slot, and what a sibling has computed of its prompt: the plan counts on it."""
        self._slots.take(slot, request.id)
        if given is not None:
            source, tokens = given
            self._model.copy(slot if source.slot is None else source.slot, slot, tokens)
            request.computed = tokens
        request.move(Phase.RUNNING)
        request.slot, request.started = slot, perf_counter()

    def _compute(self, step_plan: StepPlan) -> None:
        batch = pack(step_plan, lambda id_: self._requests[id_].tokens)
        begin = perf_counter()
        logits = self._model.run(batch)
        self._model_seconds = perf_counter() - begin
        self._commit(step_plan, outcomes(batch, logits, self._requests))

    def _commit(self, step_plan: StepPlan, found: Iterable[Outcome]) -> None:
        for s in step_plan.slices:
            self._requests[s.id].computed += s.count
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
        if request.slot is not None:
            self._vacate(request, request.slot, None if error else heir_of(request, self._requests.values()))
        self._events.append(request.end(finish, error, tokens, logprobs))

    def _vacate(self, request: Request, slot: int, heir: Request | None) -> None:
        """Take the slot back, or hand it on where the prompt in it would have to be computed again."""
        self._slots.give_back(slot, request.id)
        request.slot = None
        if heir is None:
            self._model.release(slot)
        else:
            self._start(heir, slot, (request, shareable(heir)))

    def _take_events(self) -> tuple[Event, ...]:
        events = tuple(self._events)
        self._events.clear()
        return events

    def _report(self, step_plan: StepPlan, begin: float, failure: EngineError | None) -> StepReport:
        return StepReport(
            events=self._take_events(),
            decode_rows=step_plan.decode_rows,
            prefill_rows=step_plan.prefill_rows,
            running=self._slots.used,
            waiting=len(self._requests) - self._slots.used,
            cached_tokens=sum(r.computed for r in self._requests.values()),
            model_seconds=self._model_seconds,
            step_seconds=perf_counter() - begin,
            failure=failure,
            slices=step_plan.slices,
        )
