"""What the client saw, against what /metrics counted."""

import re
import shutil
from collections.abc import Iterator
from subprocess import run

import httpx
import pytest

from tests.conftest import model_folder
from tests.server.live import Live, serving

BODY = {"prompt": "The class statement", "temperature": 0, "ignore_eos": True}
ALWAYS = (
    "vllm:num_requests_running",
    "vllm:num_requests_waiting",
    "vllm:kv_cache_usage_perc",
    "vllm:prefix_cache_queries_total",
    "vllm:prefix_cache_hits_total",
    "vllm:num_preemptions_total",
    "vllm:prompt_tokens_total",
    "vllm:generation_tokens_total",
    "vllm:request_success_total",
    "vllm:admission_rejections_total",
    "vllm:iteration_tokens_total_count",
    "vllm:time_to_first_token_seconds_count",
    "vllm:inter_token_latency_seconds_count",
    "vllm:request_time_per_output_token_seconds_count",
    "vllm:e2e_request_latency_seconds_count",
    "vllm:request_queue_time_seconds_count",
    "vllm:request_prefill_time_seconds_count",
    "vllm:request_decode_time_seconds_count",
    "vllm:request_inference_time_seconds_count",
    "vllm:request_prompt_tokens_count",
    "vllm:request_generation_tokens_count",
    "vllm:request_params_n_count",
    "vllm:request_params_max_tokens_count",
    "paceline_step_seconds_count",
    "paceline_model_seconds_count",
    "paceline_step_rows_count",
    "paceline_step_failures_total",
)


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> str:
    return str(tmp_path_factory.mktemp("cache"))


@pytest.fixture
def live(cache: str) -> Iterator[Live]:
    arguments = ["--cache-dir", cache, "--served-model-name", "tiny", "--max-queue", "30", "--slots", "2"]
    with serving(str(model_folder("llama-int4")), *arguments) as server:
        yield server


def complete(live: Live, **fields: object) -> dict[str, int]:
    answer = live.post("/v1/completions", {**BODY, **fields})
    assert answer.status_code == 200, answer.text
    usage: dict[str, int] = answer.json()["usage"]
    return usage


def test_every_series_is_there_from_the_start_at_zero(live: Live) -> None:
    text = live.get("/metrics").text
    for name in ALWAYS:
        values = re.findall(rf"^{name}{{.*}} (.*)$", text, re.MULTILINE)
        assert values, name
        assert set(values) == {"0.0"}, name
        assert all('model_name="tiny"' in line for line in text.splitlines() if line.startswith(name + "{"))
    assert live.metric("paceline_up") == 1
    assert "vllm:cache_config_info{" in text
    assert live.metric("process_resident_memory_bytes") > 1e7


def test_counters_and_histograms_agree_with_what_the_client_saw(live: Live) -> None:
    usages = [complete(live, max_tokens=tokens) for tokens in (1, 7, 20)]
    whole = live.post("/v1/completions", {**BODY, "max_tokens": 30}).json()
    usages.append(whole["usage"])
    text = whole["choices"][0]["text"]
    complete(live, max_tokens=1500, stop=text[8:11])  # so many that it is stopped before it has them
    several = live.post("/v1/completions", {**BODY, "max_tokens": 5, "n": 3}).json()["usage"]
    assert live.post("/v1/completions", {**BODY, "max_tokens": -1}).status_code == 400
    live.settled()

    reasons = {
        reason: live.metric(f'vllm:request_success_total{{finished_reason="{reason}"')
        for reason in ("length", "stop", "abort", "error")
    }
    assert reasons == {"length": 4 + 3, "stop": 1, "abort": 0, "error": 0}
    prompt = usages[0]["prompt_tokens"]
    assert live.metric("vllm:prompt_tokens_total") == 8 * prompt
    assert live.metric("vllm:prefix_cache_queries_total") == 8 * prompt
    generated = sum(usage["completion_tokens"] for usage in usages) + several["completion_tokens"]
    assert live.metric("vllm:generation_tokens_total") > generated  # and what came before the stop string was seen
    assert live.metric("vllm:generation_tokens_total") <= generated + 1500
    for name in ("e2e_request_latency", "request_queue_time", "time_to_first_token", "request_inference_time"):
        assert live.metric(f"vllm:{name}_seconds_count") == 8
    assert live.metric("vllm:request_time_per_output_token_seconds_count") == 7  # one has a single token
    assert live.metric("vllm:inter_token_latency_seconds_count") == live.metric("vllm:generation_tokens_total") - 8
    assert live.metric("vllm:request_prompt_tokens_sum") == 8 * prompt
    assert live.metric("vllm:request_generation_tokens_sum") == live.metric("vllm:generation_tokens_total")
    assert (live.metric("vllm:request_params_n_count"), live.metric("vllm:request_params_n_sum")) == (6, 8)
    assert live.metric("vllm:request_params_max_tokens_sum") == 1 + 7 + 20 + 30 + 1500 + 3 * 5
    steps = live.metric("paceline_step_seconds_count")
    assert live.metric("vllm:iteration_tokens_total_count") == steps
    kinds = [live.metric(f'paceline_model_seconds_count{{kind="{kind}"') for kind in ("prefill", "decode", "mixed")]
    assert sum(kinds) == steps
    rows = [live.metric(f'paceline_step_rows_sum{{kind="{kind}"') for kind in ("prefill", "decode")]
    assert sum(rows) == live.metric("vllm:iteration_tokens_total_sum")


def test_prompts_that_are_only_scored_count_as_others_do(live: Live) -> None:
    scored = complete(live, max_tokens=0, echo=True, logprobs=1)
    assert live.metric("vllm:prompt_tokens_total") == scored["prompt_tokens"] > 1
    both = complete(live, max_tokens=1, prompt_logprobs=1)
    assert live.metric("vllm:prompt_tokens_total") == scored["prompt_tokens"] + both["prompt_tokens"]
    complete(live, max_tokens=0)  # nothing of it is computed
    live.settled()
    assert live.metric("vllm:prompt_tokens_total") == scored["prompt_tokens"] + both["prompt_tokens"]


def test_who_leaves_and_who_is_turned_away_is_counted_as_such(live: Live) -> None:
    endless = {**BODY, "max_tokens": 1900, "stream": True, "n": 32}  # as many as there is room for
    with httpx.Client(timeout=60) as client, client.stream("POST", live.url + "/v1/completions", json=endless) as reply:
        lines = reply.iter_lines()  # kept, for its end would close the reply
        next(lines)
        refused = client.post(live.url + "/v1/completions", json=BODY)
    live.settled()
    assert refused.status_code == 429
    assert live.metric('vllm:admission_rejections_total{reason="queue_full"') == 1
    ended = [live.metric(f'vllm:request_success_total{{finished_reason="{reason}"') for reason in ("abort", "length")]
    assert sum(ended) == 32
    assert ended[0] > 0
    assert live.metric("vllm:num_requests_running") == 0


def test_promtool_finds_only_what_vllm_s_names_make_it_say(live: Live) -> None:
    promtool = shutil.which("promtool")
    if promtool is None:
        pytest.skip("Debian's prometheus, which has promtool, is not installed")
    complete(live, max_tokens=3)
    metrics = live.get("/metrics").text
    said = run([promtool, "check", "metrics"], input=metrics, capture_output=True, text=True, check=False).stderr
    ours = [
        line
        for line in said.splitlines()
        if "should not contain ':'" not in line and not line.startswith("vllm:iteration_tokens_total non-counter")
    ]
    assert ours == []
