"""Streams of a server on the loopback, with the moment of each of their tokens."""

import asyncio
import json
import random
from dataclasses import dataclass, field
from time import perf_counter
from typing import Any

import httpx


@dataclass
class Told:
    """What one request came to; `times` are seconds after it was sent, one for each piece of text."""

    status: int = 0
    times: list[float] = field(default_factory=list)
    usage: dict[str, Any] = field(default_factory=dict)
    whole: bool = False  # whether the stream came to its end

    @property
    def ttft(self) -> float:
        return self.times[0]

    @property
    def gaps(self) -> list[float]:
        return [b - a for a, b in zip(self.times, self.times[1:], strict=False)]


def words(seed: int, count: int) -> list[int]:
    """Token ids that no other seed gives."""
    rng = random.Random(seed)
    return [rng.randrange(1000, 40000) for _ in range(count)]


async def stream(
    client: httpx.AsyncClient, prompt: list[int], count: int, *, leave: int | None = None, **headers: str
) -> Told:
    """Stream a completion; `leave` after so many pieces."""
    told, begin = Told(), perf_counter()
    body = {"prompt": prompt, "max_tokens": count, "temperature": 0, "ignore_eos": True, "stream": True}
    body["stream_options"] = {"include_usage": True}
    async with client.stream("POST", "/v1/completions", json=body, headers=headers) as reply:
        told.status = reply.status_code
        async for line in reply.aiter_lines():
            if line == "data: [DONE]":
                told.whole = True
            elif line.startswith("data: "):
                event = json.loads(line[6:])
                if event.get("choices") and event["choices"][0]["text"]:
                    told.times.append(perf_counter() - begin)
                told.usage = event.get("usage") or told.usage
                if leave is not None and len(told.times) >= leave:
                    break
    return told


class Watch:
    """Asks health, metrics and models twice a second while a block runs, and keeps how long each answer took."""

    def __init__(self, client: httpx.AsyncClient) -> None:
        self._client = client
        self.times: list[float] = []

    async def __aenter__(self) -> "Watch":
        self._task = asyncio.create_task(self._ask())
        return self

    async def __aexit__(self, *_: object) -> None:
        self._task.cancel()

    async def _ask(self) -> None:
        while True:
            for path in ("/health", "/metrics", "/v1/models"):
                begin = perf_counter()
                await self._client.get(path)
                self.times.append(perf_counter() - begin)
            await asyncio.sleep(0.5)
