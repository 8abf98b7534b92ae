"""Step reports and finished requests to Prometheus, under vLLM's names. Knows nothing of the event loop."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from time import perf_counter

from prometheus_client import (
    CollectorRegistry,
    Counter,
    Gauge,
    Histogram,
    Info,
    ProcessCollector,
    disable_created_metrics,
    generate_latest,
)

from scheduler.engine import StepReport
from scheduler.request import Event, Finish, Request, Summary
from server.record import FINISHES

# vLLM's buckets, with finer low ones for the time between tokens.
LATENCY = (0.3, 0.5, 0.8, 1, 1.5, 2, 2.5, 5, 10, 15, 20, 30, 40, 50, 60, 120, 240, 480, 960, 1920, 7680)
_TTFT_LOW = (0.001, 0.005, 0.01, 0.02, 0.04, 0.06, 0.08, 0.1, 0.25, 0.5, 0.75)
TTFT = (*_TTFT_LOW, 1, 2.5, 5, 7.5, 10, 20, 40, 80, 160, 640, 2560)
_ITL_LOW = (0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.075, 0.1, 0.15, 0.2, 0.3, 0.4, 0.5, 0.75)
ITL = (*_ITL_LOW, 1, 2.5, 5, 7.5, 10, 20, 40, 80)
STEP = (0.001, 0.0025, 0.005, 0.01, 0.015, 0.02, 0.03, 0.05, 0.075, 0.1, 0.15, 0.25, 0.5, 1, 2.5, 5, 10)
TOKENS = (1, 2, 5, 10, 20, 50, 100, 200, 500, 1000, 2000, 5000, 10000, 20000, 50000, 100000)
ROWS = (0, 1, 2, 4, 8, 16, 32, 64, 128, 256, 512, 1024, 2048, 4096, 8192)
CHOICES = (1, 2, 5, 10, 20)
KINDS = ("prefill", "decode", "mixed")
FINISHED_REASONS = ("stop", "length", "abort", "error")
REJECTIONS = ("queue_full", "queue_time", "loading", "stalled", "draining", "down")

_LABELS = ("model_name", "engine")


disable_created_metrics()  # type: ignore[no-untyped-call]  # they are a second series for each, which nothing here reads


@dataclass(slots=True)
class _Siblings:
    """The choices of one prompt: how many there are, and how many have not ended."""

    n: int = 0
    left: int = 0

    def join(self) -> None:
        self.n += 1
        self.left += 1

    def leave(self) -> bool:
        """Whether this was the last."""
        self.left -= 1
        return self.left == 0


def _completes_prompt(event: Event) -> bool:
    """Whether a request's first event says that its prompt is computed: for a token, or only to be scored."""
    return bool(event.tokens) or (event.finish is Finish.LENGTH and bool(event.prompt_logprobs))


class Metrics:
    """One registry for one server; every series is there from the start, at zero.

    Args:
        model_name: the label that all series carry.
        capacity: tokens that the KV cache holds, over all slots.
        state: says how the scheduler is; 1 in `paceline_up` while it is ready.
    """

    def __init__(self, model_name: str, capacity: int, state: Callable[[], str]) -> None:
        self._registry = CollectorRegistry()
        ProcessCollector(registry=self._registry)
        self._labels = {"model_name": model_name, "engine": "0"}
        self._capacity = max(capacity, 1)
        self._last_token: dict[str, float] = {}  # when each request in flight had its last token
        self._siblings: dict[str, _Siblings] = {}
        self._in_flight: dict[str, Request] = {}
        self._running = self._gauge("vllm:num_requests_running", "Requests in the running batch.")
        self._waiting = self._gauge("vllm:num_requests_waiting", "Requests waiting for a slot.")
        self._reusable = self._gauge("paceline_reusable_tokens", "Tokens kept for prompts that begin alike.")
        self._usage = self._gauge(
            "vllm:kv_cache_usage_perc",
            "Part of the KV cache that requests use, 0 to 1; what is kept for reuse is free.",
        )
        self._preemptions = self._counter("vllm:num_preemptions", "Requests preempted.")
        self._prompt = self._counter("vllm:prompt_tokens", "Prompt tokens computed.")
        self._generation = self._counter("vllm:generation_tokens", "Tokens generated.")
        self._queries = self._counter("vllm:prefix_cache_queries", "Prompt tokens looked up in the prefix cache.")
        self._hits = self._counter("vllm:prefix_cache_hits", "Prompt tokens found in the prefix cache.")
        self._iteration = self._histogram("vllm:iteration_tokens_total", "Tokens computed in a step.", ROWS)
        self._ttft = self._histogram("vllm:time_to_first_token_seconds", "Time to first token.", TTFT)
        self._itl = self._histogram("vllm:inter_token_latency_seconds", "Time between tokens.", ITL)
        self._tpot = self._histogram(
            "vllm:request_time_per_output_token_seconds", "A request's mean time per token after the first.", ITL
        )
        self._e2e = self._histogram("vllm:e2e_request_latency_seconds", "Arrival to end.", LATENCY)
        self._queue = self._histogram("vllm:request_queue_time_seconds", "Time in the queue.", LATENCY)
        self._prefill = self._histogram("vllm:request_prefill_time_seconds", "Slot to first token.", LATENCY)
        self._decode = self._histogram("vllm:request_decode_time_seconds", "First token to end.", LATENCY)
        self._inference = self._histogram("vllm:request_inference_time_seconds", "Slot to end.", LATENCY)
        self._request_prompt = self._histogram("vllm:request_prompt_tokens", "Prompt tokens of a request.", TOKENS)
        self._request_generation = self._histogram(
            "vllm:request_generation_tokens", "Tokens generated for a request.", TOKENS
        )
        self._n = self._histogram("vllm:request_params_n", "The n of a prompt.", CHOICES)
        self._max_tokens = self._histogram("vllm:request_params_max_tokens", "The max_tokens of a request.", TOKENS)
        self._step = self._histogram("paceline_step_seconds", "Time of a step.", STEP)
        self._model = self._by_kind("paceline_model_seconds", "The model run of a step, by what it computed.", STEP)
        self._rows = self._by_kind("paceline_step_rows", "Rows of a step.", ROWS, KINDS[:2])
        self._failures = self._counter("paceline_step_failures", "Steps whose model run raised.")
        self._success = self._labelled("vllm:request_success", "Requests ended.", "finished_reason", FINISHED_REASONS)
        self._rejected = self._labelled("vllm:admission_rejections", "Requests not taken.", "reason", REJECTIONS)
        up = self._gauge("paceline_up", "1 while the scheduler takes requests.")
        up.set_function(lambda: float(state() == "ready"))

    def cache_config(self, **facts: object) -> None:
        """Publish what the cache is made of."""
        info = Info("vllm:cache_config", "The KV cache.", list(self._labels), registry=self._registry)
        info.labels(**self._labels).info({name: str(fact) for name, fact in facts.items()})

    def memory(self, parts: Mapping[str, int]) -> None:
        """Publish what the memory budget goes to, in bytes."""
        gauge = Gauge("paceline_memory_bytes", "Memory set apart.", (*_LABELS, "kind"), registry=self._registry)
        for kind, size in parts.items():
            gauge.labels(**self._labels, kind=kind).set(size)

    def submitted(self, request: Request) -> None:
        """A request was handed to the scheduler."""
        self._in_flight[request.id] = request
        if request.siblings:
            self._siblings.setdefault(request.siblings, _Siblings()).join()

    def step(self, report: StepReport) -> None:
        """Count what a step did."""
        self._running.set(report.running)
        self._waiting.set(report.waiting)
        self._usage.set(report.cached_tokens / self._capacity)
        self._reusable.set(report.reusable_tokens)
        self._preemptions.inc(report.preempted)
        self._generation.inc(sum(len(event.tokens) for event in report.events))
        if report.decode_rows or report.prefill_rows:
            self._computed(report)
        if report.failure is not None:
            self._failures.inc()
        for event in report.events:
            self._event(event, perf_counter())

    def _computed(self, report: StepReport) -> None:
        prefill, decode = report.prefill_rows, report.decode_rows
        kind = "mixed" if prefill and decode else "prefill" if prefill else "decode"
        self._iteration.observe(prefill + decode)
        self._step.observe(report.step_seconds)
        self._model[kind].observe(report.model_seconds)
        self._rows["prefill"].observe(prefill)
        self._rows["decode"].observe(decode)

    def _event(self, event: Event, now: float) -> None:
        last = self._last_token.pop(event.id, None)
        if event.tokens and last is not None:
            self._itl.observe(now - last)
        request = self._in_flight.get(event.id)
        if request is not None and last is None and _completes_prompt(event):
            self._prompt.inc(len(request.prompt))
        if event.finish is None:
            if event.tokens:
                self._last_token[event.id] = now
            return
        self._success[FINISHES[event.finish]].inc()
        if event.summary is not None:
            self._finished(event.summary)
        if request is not None:
            del self._in_flight[event.id]
            self._asked(request)

    def _asked(self, request: Request) -> None:
        """Count the parameters of a request that has ended; several choices of a prompt are one of `n`."""
        self._max_tokens.observe(request.params.max_tokens)
        if not request.siblings:
            self._n.observe(1)
        elif (siblings := self._siblings[request.siblings]).leave():
            self._n.observe(siblings.n)
            del self._siblings[request.siblings]

    def _finished(self, s: Summary) -> None:
        self._e2e.observe(s.ended - s.arrived)
        self._queue.observe(s.started - s.arrived)
        self._inference.observe(s.ended - s.started)
        self._request_prompt.observe(s.prompt_tokens)
        self._request_generation.observe(s.new_tokens)
        self._queries.inc(s.prompt_tokens)
        self._hits.inc(s.cached_tokens)
        if s.new_tokens:
            self._ttft.observe(s.first_token - s.arrived)
            self._prefill.observe(s.first_token - s.started)
            self._decode.observe(s.ended - s.first_token)
        if s.new_tokens > 1:
            self._tpot.observe((s.ended - s.first_token) / (s.new_tokens - 1))

    def rejected(self, reason: str) -> None:
        """A request was turned away."""
        self._rejected[reason].inc()

    def render(self) -> bytes:
        """Everything in Prometheus' text format."""
        return generate_latest(self._registry)

    def _gauge(self, name: str, help_: str) -> Gauge:
        return Gauge(name, help_, _LABELS, registry=self._registry).labels(**self._labels)

    def _counter(self, name: str, help_: str) -> Counter:
        return Counter(name, help_, _LABELS, registry=self._registry).labels(**self._labels)

    def _histogram(self, name: str, help_: str, buckets: tuple[float, ...]) -> Histogram:
        return Histogram(name, help_, _LABELS, registry=self._registry, buckets=buckets).labels(**self._labels)

    def _by_kind(
        self, name: str, help_: str, buckets: tuple[float, ...], kinds: tuple[str, ...] = KINDS
    ) -> dict[str, Histogram]:
        histogram = Histogram(name, help_, (*_LABELS, "kind"), registry=self._registry, buckets=buckets)
        return {kind: histogram.labels(**self._labels, kind=kind) for kind in kinds}

    def _labelled(self, name: str, help_: str, label: str, values: tuple[str, ...]) -> dict[str, Counter]:
        counter = Counter(name, help_, (*_LABELS, label), registry=self._registry)
        return {value: counter.labels(**self._labels, **{label: value}) for value in values}
