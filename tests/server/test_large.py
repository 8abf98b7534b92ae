"""What is large holds up nobody: over real sockets, with the tiny model, while others ask for little."""

import json
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import httpx
import pytest

from tests.server.live import Live

MANY = 12 * 2**20
SCORED = {"prompt": [10] * 2000, "max_tokens": 1, "temperature": 0, "prompt_logprobs": 20}
LARGE: dict[str, tuple[str, Callable[[], object], int]] = {
    "a text": ("/v1/completions", lambda: {"prompt": "a b " * (MANY // 4)}, 400),
    "messages": ("/v1/chat/completions", lambda: {"messages": [{"role": "user", "content": "a"}] * (MANY // 33)}, 400),
    "one message": ("/v1/chat/completions", lambda: {"messages": [{"role": "user", "content": "a" * MANY}]}, 400),
    "ids": ("/v1/completions", lambda: {"prompt": [1] * (MANY // 4)}, 400),
    "lists of ids": ("/v1/completions", lambda: {"prompt": [[1] * 2000] * 1500}, 400),
    "what is ignored": ("/v1/completions", lambda: {"prompt": "a", "metadata": [[]] * (MANY // 4)}, 400),
    "stop strings": ("/v1/completions", lambda: {"prompt": "a", "stop": ["a"] * (MANY // 5)}, 400),
    "tokens to spell": ("/detokenize", lambda: {"tokens": [1] * 10**6}, 200),
    "a text to cut": ("/tokenize", lambda: {"prompt": "a b " * 12_000, "return_token_strs": True}, 200),
    "logprobs of a prompt": ("/v1/completions", lambda: SCORED, 200),
    "an echo of it": ("/v1/completions", lambda: {**SCORED, "echo": True, "logprobs": 20, "n": 4}, 200),
    "logprobs in a stream": ("/v1/completions", lambda: {**SCORED, "stream": True}, 200),
}


@contextmanager
def answered_meanwhile(live: Live) -> Iterator[list[str]]:
    """The states that /health told, one after the other, while the block lasted."""
    told: list[str] = []
    over = threading.Event()

    def ask() -> None:
        with httpx.Client(base_url=live.url, timeout=60) as client:
            while not over.is_set():
                told.append(client.get("/health").json()["status"])

    thread = threading.Thread(target=ask)
    thread.start()
    try:
        yield told
    finally:
        over.set()
        thread.join()


@pytest.mark.parametrize("what", LARGE)
def test_what_is_large_is_answered_and_so_are_others_meanwhile(tiny: Live, what: str) -> None:
    path, body, status = LARGE[what]
    content = json.dumps(body(), separators=(",", ":")).encode()
    assert len(content) < 16 * 2**20
    with answered_meanwhile(tiny) as told, httpx.Client(timeout=120) as client:
        answer = client.post(tiny.url + path, content=content, headers={"content-type": "application/json"})
        meanwhile = len(told)
    assert answer.status_code == status, answer.text[:300]
    if status == 400:
        assert answer.json()["error"]["type"] == "invalid_request_error"
    assert set(told) == {"ready"}
    assert meanwhile > 1
    tiny.settled()


def test_a_large_answer_says_what_a_small_one_says(tiny: Live) -> None:
    plain = tiny.post("/v1/completions", SCORED).json()["choices"][0]["prompt_logprobs"]
    streamed = tiny.post("/v1/completions", {**SCORED, "stream": True}).text
    first = json.loads(streamed.split("\n\n", 1)[0].removeprefix("data: "))
    assert first["choices"][0]["prompt_logprobs"] == plain
    assert len(plain) == 2000
    assert plain[0] is None
    assert all(len(one) in (20, 21) for one in plain[1:])
