"""Events stay whole for clients that take more than \\n for the end of a line."""

import asyncio
import json

import httpx
import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.errors import BadRequest, event
from server.feed import Feed
from server.render import ChatRenderer, CompletionRenderer, Head, Part
from server.sse import event as sse_event
from server.stretches import at_once
from tests.server.held import HeldModel, bridge_over
from tests.server.live import Live

SEPARATORS = "\x0b\x0c\r\n\x1c\x1d\x1e\x85\u2028\u2029"
texts = st.text(st.characters(exclude_categories=["Cs"]) | st.sampled_from(SEPARATORS), max_size=20)


@given(text=texts, key=texts)
def test_any_text_is_one_line_of_data_however_lines_are_split(text: str, key: str) -> None:
    lines = sse_event(msgspec.json.encode({key: text}), "hello").decode().splitlines()
    assert (lines[0], lines[2:]) == ("event: hello", [""])
    assert json.loads(lines[1].removeprefix("data: ")) == {key: text}


@pytest.mark.parametrize(
    "made",
    [
        at_once(CompletionRenderer(Head("1", SEPARATORS)).chunk(Part(0, SEPARATORS))),
        at_once(ChatRenderer(Head("1", "m")).chunk(Part(0, SEPARATORS))),
        event(BadRequest(SEPARATORS, param=SEPARATORS)),
    ],
)
def test_no_event_of_the_api_is_torn(made: bytes) -> None:
    assert len(made.decode().splitlines()) == 2


def test_the_feed_is_not_torn_by_a_model_s_name() -> None:
    async def first() -> bytes:
        return await anext(Feed({"models": [SEPARATORS]}).watch(bridge_over(HeldModel(), stall=30)))

    lines = asyncio.run(first()).decode().splitlines()
    assert (lines[0], lines[2:]) == ("event: hello", [""])
    assert json.loads(lines[1].removeprefix("data: ")) == {"models": [SEPARATORS]}


def test_httpx_reads_whole_events_from_a_stream_of_such_characters(tiny: Live) -> None:
    body = {"prompt": f"a{SEPARATORS}b", "echo": True, "max_tokens": 4, "stream": True}
    with httpx.Client(timeout=60) as client, client.stream("POST", f"{tiny.url}/v1/completions", json=body) as reply:
        data = [line.removeprefix("data: ") for line in reply.iter_lines() if line]
    assert data.pop() == "[DONE]"
    text = "".join(choice["text"] for line in data for choice in json.loads(line)["choices"])
    assert text.startswith(f"a{SEPARATORS}b")
