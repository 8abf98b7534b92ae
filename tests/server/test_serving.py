"""The real command with a tiny model over a real socket: what does not need a model that speaks."""

import json
import signal
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import model_folder
from tests.server.live import Live, counts, serving

TEXT = {"prompt": "The class statement", "temperature": 0}
ENDLESS = {**TEXT, "ignore_eos": True, "stream": True, "max_tokens": 1900}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture(scope="module")
def live(cache: str) -> Iterator[Live]:
    with serving(str(model_folder("llama-int4")), "--cache-dir", cache, "--served-model-name", "tiny") as server:
        yield server


def events(lines: Iterator[str]) -> Iterator[dict[str, object]]:
    """The JSON events of a stream; the stream must end with [DONE]."""
    for line in lines:
        if line == "data: [DONE]":
            return
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))
    raise AssertionError("the stream ended without [DONE]")


def test_a_stream_says_what_the_plain_reply_says(live: Live) -> None:
    body = {**TEXT, "max_tokens": 30}
    plain = live.post("/v1/completions", body).json()
    streamed = live.post("/v1/completions", {**body, "stream": True, "stream_options": {"include_usage": True}})
    chunks = list(events(iter(streamed.text.splitlines())))
    choices = [chunk["choices"][0] for chunk in chunks if chunk["choices"]]  # type: ignore[index]
    assert "".join(choice["text"] for choice in choices) == plain["choices"][0]["text"]
    assert choices[-1]["finish_reason"] == plain["choices"][0]["finish_reason"]
    assert counts(chunks[-1]["usage"]) == counts(plain["usage"])
    assert streamed.headers["content-type"].startswith("text/event-stream")


def test_the_same_seed_gives_the_same_text_and_another_seed_another(live: Live) -> None:
    def text(seed: int) -> str:
        body = {"prompt": "if x", "max_tokens": 40, "temperature": 1.5, "seed": seed, "ignore_eos": True}
        return str(live.post("/v1/completions", body).json()["choices"][0]["text"])

    assert text(1) == text(1)
    assert text(1) != text(2)


def test_a_stop_string_cuts_the_text_and_its_count(live: Live) -> None:
    whole = live.post("/v1/completions", {**TEXT, "max_tokens": 40}).json()["choices"][0]["text"]
    stop = whole[10:13]
    cut = live.post("/v1/completions", {**TEXT, "max_tokens": 40, "stop": stop}).json()
    assert cut["choices"][0]["text"] == whole[: whole.index(stop)]
    assert cut["choices"][0]["finish_reason"] == "stop"
    assert cut["usage"]["completion_tokens"] < 40
    live.settled()


@pytest.mark.parametrize("streamed", [True, False])
def test_a_client_that_leaves_frees_its_slot(live: Live, streamed: bool) -> None:
    before = live.metric('vllm:request_success_total{finished_reason="abort"')
    with httpx.Client(timeout=30) as client:
        if streamed:
            with client.stream("POST", live.url + "/v1/completions", json=ENDLESS) as response:
                lines = response.iter_lines()
                for _ in range(3):
                    next(lines)
        else:
            with pytest.raises(httpx.ReadTimeout):
                client.post(live.url + "/v1/completions", json={**ENDLESS, "stream": False}, timeout=0.05)
    live.settled()
    assert live.metric('vllm:request_success_total{finished_reason="abort"') == before + 1
    assert live.metric("vllm:num_requests_running") == 0
    assert live.metric("vllm:kv_cache_usage_perc") == 0


@pytest.mark.parametrize(
    ("method", "path", "body", "status", "param"),
    [
        ("POST", "/v1/completions", b"", 400, None),
        ("POST", "/v1/completions", b'{"prompt": ', 400, None),
        ("POST", "/v1/completions", b'{"prompt": "a", "temperature": "hot"}', 400, "temperature"),
        ("POST", "/v1/completions", b'{"prompt": "a", "temprature": 1}', 400, "temprature"),
        ("POST", "/v1/completions", b'{"prompt": "a", "model": "other"}', 404, "model"),
        ("POST", "/v1/completions", json.dumps({"prompt": [5] * 5000}).encode(), 400, "prompt"),
        ("POST", "/v1/completions", b'{"prompt": [640]}', 400, "prompt"),
        ("POST", "/v1/chat/completions", b'{"messages": []}', 400, "messages"),
        ("GET", "/v1/completions", None, 405, None),
        ("GET", "/nowhere", None, 404, None),
        ("GET", "/v1/models/other", None, 404, "model"),
    ],
)
def test_bad_requests_get_openai_s_errors(
    live: Live, method: str, path: str, body: bytes | None, status: int, param: str | None
) -> None:
    headers = {"content-type": "application/json", "x-request-id": "mine"}
    response = httpx.request(method, live.url + path, content=body, headers=headers)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert error["param"] == param
    assert response.headers["x-request-id"] == "mine"


def test_what_is_not_json_or_too_large_is_refused(cache: str) -> None:
    arguments = (str(model_folder("llama-int4")), "--cache-dir", cache, "--max-body", "2000")
    with serving(*arguments) as server:
        url = server.url + "/v1/completions"
        assert httpx.post(url, content=b"prompt=a", headers={"content-type": "text/plain"}).status_code == 415
        assert httpx.post(url, json={"prompt": "a" * 3000}).status_code == 413
        assert httpx.post(url, content=iter([b" " * 1500, b" " * 1500])).status_code == 413
        assert httpx.post(url, json={"prompt": "a", "max_tokens": 1}).status_code == 200


def test_models_health_live_and_version_answer(live: Live) -> None:
    (model,) = live.get("/v1/models").json()["data"]
    assert (model["id"], model["max_model_len"]) == ("tiny", 2048)
    assert live.get("/v1/models/tiny").json() == model
    assert live.get("/health").json()["status"] == "ready"
    assert live.get("/live").status_code == 200
    assert "paceline" in live.get("/version").json()
    assert live.metric("paceline_up") == 1


def test_metrics_count_what_the_client_saw(live: Live) -> None:
    names = (
        "vllm:generation_tokens_total",
        "vllm:prompt_tokens_total",
        "vllm:time_to_first_token_seconds_count",
        "vllm:inter_token_latency_seconds_count",
        'vllm:request_success_total{finished_reason="length"',
    )
    before = [live.metric(name) for name in names]
    usage = [live.post("/v1/completions", {**TEXT, "max_tokens": count}).json()["usage"] for count in (1, 7)]
    live.settled()
    after = [live.metric(name) for name in names]
    prompt = sum(u["prompt_tokens"] for u in usage)
    assert [b - a for a, b in zip(before, after, strict=True)] == [8, prompt, 2, 6, 2]


def test_a_full_queue_answers_429_and_loses_nobody(cache: str) -> None:
    arguments = (str(model_folder("llama-int4")), "--cache-dir", cache, "--slots", "1", "--max-queue", "0")
    with serving(*arguments) as server, httpx.Client(timeout=60) as client:
        url = server.url + "/v1/completions"
        with client.stream("POST", url, json=ENDLESS) as first:
            lines = first.iter_lines()
            next(lines)
            refused = client.post(url, json=TEXT)
            assert refused.status_code == 429
            assert int(refused.headers["retry-after"]) >= 1
            assert refused.json()["error"]["type"] == "rate_limit_error"
            assert len(list(events(lines))) > 1
        server.settled()
        assert client.post(url, json={**TEXT, "max_tokens": 1}).status_code == 200
        assert server.metric('vllm:admission_rejections_total{reason="queue_full"') == 1


def test_sigterm_ends_an_idle_server_with_status_0(cache: str) -> None:
    with serving(str(model_folder("llama-int4")), "--cache-dir", cache) as server:
        assert server.end(signal.SIGTERM)[0] == 0


def test_a_busy_server_drains(cache: str) -> None:
    with serving(str(model_folder("llama-int4")), "--cache-dir", cache) as server, httpx.Client(timeout=60) as client:
        other = httpx.Client(timeout=60)
        other.get(server.url + "/live")  # a connection that is open before the signal
        with client.stream("POST", server.url + "/v1/completions", json=ENDLESS) as response:
            lines = response.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            answers = [other.get(server.url + "/health").json()["status"] for _ in range(50)]
            assert "draining" in answers
            refused = other.post(server.url + "/v1/completions", json=TEXT)
            assert refused.status_code == 503
            last = list(events(lines))[-1]
            assert last["choices"][0]["finish_reason"] == "length"  # type: ignore[index]
        assert server.end()[0] == 0


def test_a_request_over_the_drain_time_ends_with_an_error_event(cache: str) -> None:
    arguments = (str(model_folder("llama-int4")), "--cache-dir", cache, "--drain-timeout", "0")
    with serving(*arguments) as server, httpx.Client(timeout=60) as client:
        with client.stream("POST", server.url + "/v1/completions", json=ENDLESS) as response:
            lines = response.iter_lines()
            next(lines)
            server.process.send_signal(signal.SIGTERM)
            data = [line for line in lines if line.startswith("data: ")]
        assert json.loads(data[-1].removeprefix("data: "))["error"]["type"] == "service_unavailable"
        assert server.end()[0] == 0


def test_a_folder_that_cannot_be_served_is_told_in_one_line(tmp_path: Path, cache: str) -> None:
    (tmp_path / "genai_config.json").write_text("{}")
    with pytest.raises(AssertionError, match="paceline:"):
        Live(str(tmp_path), "--cache-dir", cache)
