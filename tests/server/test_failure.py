"""The real command over a model whose run really fails: a graph that looks up a table too short for some tokens."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import onnx_ir as ir
import pytest

from scheduler.model.importing import Silent, import_model
from scheduler.worker import MOST_FAILURES
from tests.conftest import AS_IT_IS, model_folder
from tests.server.live import Live, serving

BAD = [639]
"""A prompt whose token is behind the table's end."""

GOOD = {"prompt": [5, 6, 7], "max_tokens": 4, "temperature": 0, "ignore_eos": True}
FLAGS = ("--served-model-name", "brittle", "--slots", "4", "--log-format", "json")


@pytest.fixture(scope="module")
def brittle(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A packed folder that runs as it did, but for tokens from 600 on, where onnxruntime raises."""
    folder = tmp_path_factory.mktemp("brittle") / "packed"
    import_model(model_folder("llama-int4"), folder, AS_IT_IS, Silent())
    model = ir.load(folder / "model.onnx")
    ids = next(value for value in model.graph.inputs if value.name == "input_ids")
    table = ir.tensor(np.arange(600), name="guard.table")
    value = ir.Value(name="guard.table", const_value=table, shape=ir.Shape([600]), type=ir.TensorType(table.dtype))
    model.graph.register_initializer(value)
    readers = [(use.node, use.idx) for use in ids.uses()]
    guard = ir.node("Gather", [value, ids], outputs=[ir.Value(name="guard.ids")], name="guard")
    model.graph.insert_before(model.graph[0], guard)
    for node, index in readers:
        node.replace_input_with(index, guard.outputs[0])
    ir.save(model, folder / "model.onnx")
    return folder


@pytest.fixture
def live(brittle: Path) -> Iterator[Live]:
    with serving(str(brittle), *FLAGS) as server:
        yield server


def test_a_failing_step_ends_its_requests_and_the_server_goes_on(live: Live) -> None:
    before = live.post("/v1/completions", GOOD).json()["choices"][0]["text"]
    for _ in range(2 * MOST_FAILURES):  # never so many in a row
        failed = live.post("/v1/completions", {**GOOD, "prompt": BAD})
        assert failed.status_code == 500
        assert failed.json()["error"]["type"] == "server_error"
        assert live.post("/v1/completions", GOOD).json()["choices"][0]["text"] == before
    assert live.get("/health").status_code == 200
    live.settled()


def test_a_failing_step_ends_a_stream_with_an_error_event(live: Live) -> None:
    body = {**GOOD, "stream": True, "logit_bias": {f"{BAD[0]}": 100}}  # its first token is the one that cannot be read
    reply = live.post("/v1/completions", body)
    assert reply.status_code == 200
    events = [json.loads(line.removeprefix("data: ")) for line in reply.text.splitlines() if line.startswith("data: {")]
    assert events[0]["choices"][0]["text"]
    assert events[-1]["error"]["type"] == "server_error"
    live.settled()


def test_repeated_failures_turn_health_red_and_the_process_stays(live: Live) -> None:
    for _ in range(MOST_FAILURES):
        assert live.post("/v1/completions", {**GOOD, "prompt": BAD}).status_code in (500, 503)
    health = live.get("/health")
    assert health.status_code == 503
    assert health.json()["status"] == "down"
    assert "in a row" in health.json()["reason"]
    refused = live.post("/v1/completions", GOOD)
    assert (refused.status_code, refused.headers["x-should-retry"]) == (503, "false")  # it will not rise again
    assert live.metric('vllm:admission_rejections_total{reason="down"') == 1
    assert live.get("/live").status_code == 200
    status, log = live.end(signal.SIGTERM)
    assert status == 0
    assert "the engine cannot go on" in log


def test_a_supervisor_can_have_it_exit(brittle: Path) -> None:
    with serving(str(brittle), *FLAGS, "--exit-on-failure") as server:
        for _ in range(MOST_FAILURES):
            assert server.post("/v1/completions", {**GOOD, "prompt": BAD}).status_code in (500, 503)
        server.process.wait(timeout=60)
        assert server.process.returncode == 1
    assert any("the engine cannot go on" in line for line in server.log)
    assert all(json.loads(line) for line in server.log if line.startswith("{"))
