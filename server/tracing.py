"""Each request that generated something as an OpenTelemetry trace: a span for it, and one for each of its phases.

The spans are made when the request is over, from the moments that are kept anyway, so that tracing costs nothing on the
way; and this file is imported only where an endpoint is given. Knows no text.
"""

from time import perf_counter_ns, time_ns

from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor
from opentelemetry.trace import SpanKind, Status, StatusCode, set_span_in_context
from opentelemetry.trace.propagation.tracecontext import TraceContextTextMapPropagator

from scheduler.request import Summary
from server.record import FINISHES, Record, totals


class Tracing:
    """A listener of the journal that sends traces to an OTLP endpoint, and is closed at the end."""

    def __init__(self, endpoint: str, model: str, version: str) -> None:
        resource = Resource.create({"service.name": "paceline", "service.version": version})
        provider = TracerProvider(resource=resource, shutdown_on_exit=False)
        provider.add_span_processor(BatchSpanProcessor(OTLPSpanExporter(endpoint=endpoint)))
        self._provider = provider
        self._tracer = provider.get_tracer("paceline")
        self._context = TraceContextTextMapPropagator()
        self._model = model
        self._epoch = time_ns() - perf_counter_ns()

    def __call__(self, record: Record) -> None:
        """Make the spans of a finished request."""
        if not record.done or record.ended is None:
            return
        came_with = self._context.extract({"traceparent": record.traceparent})
        span = self._tracer.start_span(
            f"{record.method} {record.path}",
            came_with,
            SpanKind.SERVER,
            attributes=attributes(record, self._model),
            start_time=self._moment(record.arrived),
        )
        for finish, summary in record.done:
            for name, begin, end in phases(summary):
                phase = self._tracer.start_span(name, set_span_in_context(span), start_time=self._moment(begin))
                phase.set_attribute("gen_ai.response.finish_reasons", [FINISHES[finish]])
                phase.end(self._moment(end))
        if record.status >= 500 or "error" in record.finish:
            span.set_status(Status(StatusCode.ERROR, record.error))
        span.end(self._moment(record.ended))

    def close(self) -> None:
        """Send what has not been sent."""
        self._provider.shutdown()

    def _moment(self, seconds: float) -> int:
        """Nanoseconds since the epoch, of a moment of `perf_counter`."""
        return self._epoch + int(seconds * 1e9)


def phases(s: Summary) -> list[tuple[str, float, float]]:
    """The spans of a generation; the ones that it never came to are left out."""
    found = [("queue", s.arrived, s.started)]
    if s.started < s.ended:
        found.append(("prefill", s.started, s.first_token))
    if s.new_tokens > 1:
        found.append(("decode", s.first_token, s.ended))
    return found


def attributes(record: Record, model: str) -> dict[str, str | int | float | list[str]]:
    """What is said of a request, under the names of the semantic conventions where there are any."""
    t = totals([summary for _, summary in record.done])
    said: dict[str, str | int | float | list[str]] = {
        "http.request.method": record.method,
        "url.path": record.path,
        "http.response.status_code": record.status,
        "client.address": record.client,
        "gen_ai.response.model": model,
        "gen_ai.response.finish_reasons": [FINISHES[finish] for finish, _ in record.done],
        "gen_ai.usage.input_tokens": t.prompt,
        "gen_ai.usage.output_tokens": t.new,
        "gen_ai.latency.time_in_queue": t.queue,
        "paceline.request_id": record.id,
        "paceline.cached_tokens": t.cached,
    }
    if record.key:
        said["paceline.key"] = record.key
    if t.ttft is not None:
        said["gen_ai.latency.time_to_first_token"] = t.ttft
    return said
