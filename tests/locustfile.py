"""Load from locust: `locust -f tests/locustfile.py --host http://127.0.0.1:8000 --headless -u 16 -r 16 -t 30s`.

Streams chats and reports, beside locust's own figures, the time to the first token as a request of the type TTFT.
"""

import json
import random
from time import perf_counter

from locust import HttpUser, constant, task

QUESTIONS = ("What is the capital of France?", "Write a haiku about the sea.", "Explain recursion in one sentence.")


class Reader(HttpUser):  # type: ignore[misc] # locust ships no types for it
    """Asks, reads the whole stream, and asks again."""

    wait_time = constant(0)

    @task  # type: ignore[untyped-decorator]
    def chat(self) -> None:
        """One streamed chat."""
        body = {
            "messages": [{"role": "user", "content": random.choice(QUESTIONS)}],
            "max_tokens": 32,
            "stream": True,
            "stream_options": {"include_usage": True},
        }
        begin = perf_counter()
        with self.client.post("/v1/chat/completions", json=body, stream=True, catch_response=True) as reply:
            lines = [line for line in self._lines(reply, begin) if line.startswith("data: ")]
            if not lines or lines[-1] != "data: [DONE]":
                reply.failure(f"the stream ended without [DONE]: {lines[-1:]}")
            elif not json.loads(lines[-2].removeprefix("data: "))["usage"]["completion_tokens"]:
                reply.failure("nothing was generated")

    def _lines(self, reply: object, begin: float) -> list[str]:
        lines: list[str] = []
        for line in reply.iter_lines(decode_unicode=True):  # type: ignore[attr-defined]
            if not lines:
                self._first_token(perf_counter() - begin)
            lines.append(line)
        return lines

    def _first_token(self, seconds: float) -> None:
        self.environment.events.request.fire(
            request_type="TTFT",
            name="chat",
            response_time=seconds * 1000,
            response_length=0,
            exception=None,
            context={},
        )
