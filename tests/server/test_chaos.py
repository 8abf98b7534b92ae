"""Five hundred mixed requests at twice the capacity, half of them left at a random moment: the books balance."""

import asyncio
import random
from collections import Counter

import httpx

from tests.server.live import Live, metric

REQUESTS, CROWD = 500, 80  # the tiny server takes 40 at once
KNOWN = {"prompt": "The class statement", "temperature": 0, "max_tokens": 20}
REASONS = ("stop", "length", "abort", "error")


def body(rng: random.Random) -> tuple[str, dict[str, object]]:
    """A path and a request to it."""
    common: dict[str, object] = {"max_tokens": rng.choice([1, 8, 40, 120]), "seed": rng.randrange(99)}
    common |= rng.choice([{}, {"n": 3}, {"stop": ["e", " th"]}, {"temperature": 0}, {"ignore_eos": True}])
    common |= rng.choice([{}, {"stream": True}, {"stream": True, "stream_options": {"include_usage": True}}])
    common |= rng.choice([{}, {"repetition_penalty": 1.2}, {"min_tokens": 1}, {"timeout": 0.05}, {"top_p": 0.5}])
    if rng.random() < 0.3:
        return "/v1/chat/completions", {"messages": [{"role": "user", "content": "Say it"}], **common}
    prompt = rng.choice(["a", ["if x", "def f"], [7] * rng.choice([1, 3, 50, 400])])
    extra = rng.choice([{}, {"logprobs": 2}, {"echo": True, "logprobs": 1}, {"prompt_logprobs": 0}])
    return "/v1/completions", {"prompt": prompt, **common, **extra}


async def ask(client: httpx.AsyncClient, crowd: asyncio.Semaphore, number: int) -> str:
    """Ask, or leave after a few chunks or a while; how it went."""
    rng = random.Random(number)
    path, fields = body(rng)
    chunks, patience = rng.randrange(6), rng.random() * 0.3
    async with crowd:
        try:
            async with asyncio.timeout(patience if number % 4 == 0 else None):
                async with client.stream("POST", path, json=fields) as reply:
                    async for _ in reply.aiter_raw():
                        chunks -= 1
                        if number % 4 == 2 and chunks < 0:
                            return "left"
                    return str(reply.status_code)
        except TimeoutError:
            return "left"


async def crowd(url: str) -> Counter[str]:
    limits = httpx.Limits(max_connections=None)
    async with httpx.AsyncClient(base_url=url, timeout=120, limits=limits) as client:
        gate = asyncio.Semaphore(CROWD)
        return Counter(await asyncio.gather(*(ask(client, gate, number) for number in range(REQUESTS))))


def ended(metrics: str) -> dict[str, float]:
    return {reason: metric(metrics, f'vllm:request_success_total{{finished_reason="{reason}"') for reason in REASONS}


def test_after_a_crowd_that_leaves_at_random_moments_the_books_balance(tiny: Live) -> None:
    expected = tiny.post("/v1/completions", KNOWN).json()["choices"]
    before = ended(tiny.get("/metrics").text)
    told = asyncio.run(crowd(tiny.url))
    tiny.settled()
    metrics = tiny.get("/metrics").text
    after = ended(metrics)
    assert told.keys() <= {"200", "408", "429", "left"}, told
    assert told["200"] > 50
    assert told["left"] > 50
    assert after["error"] == before["error"]
    assert after["abort"] > before["abort"]
    assert sum(after.values()) == metric(metrics, "vllm:e2e_request_latency_seconds_count")
    for gauge in ("vllm:num_requests_running", "vllm:num_requests_waiting", "vllm:kv_cache_usage_perc"):
        assert metric(metrics, gauge) == 0
    load = tiny.get("/load").json()
    assert (load["in_flight"], load["running"], load["waiting"], load["cached_tokens"]) == (0, 0, 0, 0)
    assert tiny.post("/v1/completions", KNOWN).json()["choices"] == expected
    assert len(tiny.post("/v1/completions", {**KNOWN, "n": 40}).json()["choices"]) == 40  # every place is free
