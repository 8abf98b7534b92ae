"""Traces, as a collector gets them."""

import signal
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path

import pytest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest
from opentelemetry.proto.trace.v1.trace_pb2 import Span, Status

from server.keys import key_line
from tests.conftest import model_folder
from tests.server.live import serving

BODY = {"prompt": "The class", "max_tokens": 5, "ignore_eos": True}
TRACE, PARENT = "0af7651916cd43dd8448eb211c80319c", "b7ad6b7169203331"


@pytest.fixture
def collector() -> Iterator[tuple[str, list[Span]]]:
    """A collector's URL, and the spans it has."""
    spans: list[Span] = []

    class Collect(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = ExportTraceServiceRequest()
            request.ParseFromString(self.rfile.read(int(self.headers["content-length"])))
            for resource in request.resource_spans:
                for scope in resource.scope_spans:
                    spans.extend(scope.spans)
            self.send_response(200)
            self.end_headers()

        def log_message(self, format: str, *_: object) -> None:  # noqa: A002
            pass

    with HTTPServer(("127.0.0.1", 0), Collect) as server:
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/v1/traces", spans
        server.shutdown()
        thread.join()


def values(span: Span) -> dict[str, object]:
    found: dict[str, object] = {}
    for attribute in span.attributes:
        kind = attribute.value.WhichOneof("value")
        assert kind is not None
        found[attribute.key] = getattr(attribute.value, kind)
    return found


def test_a_request_is_a_span_with_its_phases_under_the_trace_it_came_with(
    collector: tuple[str, list[Span]], tmp_path: Path
) -> None:
    url, spans = collector
    (tmp_path / "keys").write_text(key_line("anna", "a-key") + "\n")
    arguments = ["--cache-dir", str(tmp_path), "--otlp-endpoint", url, "--api-key-file", str(tmp_path / "keys")]
    with serving(str(model_folder("llama-int4")), *arguments) as live:
        headers = {"authorization": "Bearer a-key", "x-request-id": "mine"}
        live.post("/v1/completions", BODY, **headers, traceparent=f"00-{TRACE}-{PARENT}-01")
        live.post("/v1/completions", {**BODY, "n": 2, "request_id": "by-body"}, **headers)
        live.post("/v1/completions", BODY, **headers, traceparent=f"00-{TRACE}-{PARENT}-00")  # not to be traced
        live.get("/v1/models", **headers)
        live.settled()
        live.end(signal.SIGTERM)

    requests = [span for span in spans if span.kind == Span.SPAN_KIND_SERVER]
    assert len(requests) == 2
    first = next(span for span in requests if span.trace_id.hex() == TRACE)
    assert first.parent_span_id.hex() == PARENT
    assert first.name == "POST /v1/completions"
    said = values(first)
    assert (said["paceline.request_id"], said["paceline.key"]) == ("mine", "anna")
    assert (said["gen_ai.usage.output_tokens"], said["http.response.status_code"]) == (5, 200)
    assert first.status.code != Status.STATUS_CODE_ERROR

    children = [span for span in spans if span.parent_span_id == first.span_id]
    assert [span.name for span in children] == ["queue", "prefill", "decode"]
    moments = [moment for span in children for moment in (span.start_time_unix_nano, span.end_time_unix_nano)]
    assert moments == sorted(moments)
    assert first.start_time_unix_nano <= moments[0]
    assert moments[-1] <= first.end_time_unix_nano

    second = next(span for span in requests if span.trace_id.hex() != TRACE)
    assert values(second)["paceline.request_id"] == "by-body"
    assert sum(span.parent_span_id == second.span_id for span in spans) == 6
