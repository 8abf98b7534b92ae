import json
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx

from scheduler.engine import StepReport
from scheduler.plan import Slice
from scheduler.request import Event, Finish
from server.feed import Feed
from tests.conftest import model_folder
from tests.server.live import serving

BODY = {"prompt": [10] * 300, "max_tokens": 20, "ignore_eos": True, "temperature": 0}


def messages(reply: httpx.Response) -> Iterator[dict[str, Any]]:
    for line in reply.iter_lines():
        if line.startswith("data: "):
            yield json.loads(line.removeprefix("data: "))


def test_without_a_viewer_a_step_is_not_even_put_into_words() -> None:
    steps = StepReport((Event("a", (1,), finish=Finish.STOP),), slices=(Slice("a", 0, 0, 4, False, True),))
    Feed({}).step(steps)  # would need a running event loop to hand anything out


def test_a_request_is_seen_to_join_prefill_decode_and_leave_and_no_text_is_told(tmp_path: Path) -> None:
    with serving(str(model_folder("llama-int4")), "--cache-dir", str(tmp_path)) as server:
        with httpx.stream("GET", server.url + "/v1/steps", timeout=60) as feed:
            assert feed.headers["content-type"].startswith("text/event-stream")
            told = messages(feed)
            hello = next(told)
            assert (hello["slots"], hello["models"], hello["capacity"]) == (32, ["llama-int4"], 32 * 2048)
            assert next(told)["state"] == "ready"
            answer = server.post("/v1/completions", BODY).json()
            steps: list[dict[str, Any]] = []
            while not (steps and steps[-1]["ended"]):
                steps += next(told)["steps"]
        slices = [tuple(part[2:]) for step in steps for part in step["slices"]]
        prefill = [(start, rows) for start, rows, decodes in slices if not decodes]
        assert prefill == [(0, 256), (256, 44)]
        assert [start for start, _, decodes in slices if decodes] == list(range(300, 319))
        assert {part[0] for step in steps for part in step["slices"]} == {answer["id"][-8:]}
        assert steps[-1]["ended"] == [[answer["id"][-8:], "length"]]
        assert sum(step["tokens"] for step in steps) == 20
        assert all(0 < step["model_seconds"] <= step["seconds"] for step in steps)


def test_a_viewer_does_not_hold_up_the_server_s_end(tmp_path: Path) -> None:
    with (
        serving(str(model_folder("llama-int4")), "--cache-dir", str(tmp_path)) as server,
        httpx.stream("GET", server.url + "/v1/steps", timeout=60) as feed,
    ):
        told = messages(feed)
        next(told)
        server.process.send_signal(signal.SIGTERM)
        assert list(told)[-1]["state"] in {"ready", "draining", "down"}  # the stream ends by itself
        assert server.end()[0] == 0
