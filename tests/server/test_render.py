import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from server.render import (
    DONE,
    KEEP_ALIVE,
    ChatRenderer,
    Choice,
    CompletionRenderer,
    Head,
    ModelCard,
    Renderer,
    Usage,
    chat_id,
    completion_id,
    model_card,
    model_list,
)

HEAD = Head("id-1", "tiny", 1_700_000_000)
USAGE = Usage(prompt=5, completion=3, cached=2)
COUNTS = {
    "prompt_tokens": 5,
    "completion_tokens": 3,
    "total_tokens": 8,
    "prompt_tokens_details": {"cached_tokens": 2},
}
CHOICES = [Choice(0, "Paris", "stop"), Choice(1, "Par", "length")]


def event(data: bytes) -> dict[str, Any]:
    assert data.startswith(b"data: ")
    assert data.endswith(b"\n\n")
    assert data.count(b"\n") == 2
    object_: dict[str, Any] = json.loads(data[6:])
    return object_


def renderers(include_usage: bool) -> list[Renderer]:
    return [
        CompletionRenderer(HEAD, include_usage=include_usage),
        ChatRenderer(HEAD, include_usage=include_usage),
    ]


def test_a_plain_completion_has_openais_shape() -> None:
    body = json.loads(CompletionRenderer(HEAD).reply(CHOICES, USAGE))
    assert body == {
        "id": "id-1",
        "object": "text_completion",
        "created": 1_700_000_000,
        "model": "tiny",
        "choices": [
            {"index": 0, "text": "Paris", "finish_reason": "stop", "logprobs": None},
            {"index": 1, "text": "Par", "finish_reason": "length", "logprobs": None},
        ],
        "usage": COUNTS,
    }
    assert Completion.model_validate(body, strict=True).choices[1].text == "Par"


def test_a_plain_chat_completion_has_openais_shape() -> None:
    body = json.loads(ChatRenderer(HEAD).reply(CHOICES[:1], USAGE))
    message = {"content": "Paris", "role": "assistant", "refusal": None}
    assert body == {
        "id": "id-1",
        "object": "chat.completion",
        "created": 1_700_000_000,
        "model": "tiny",
        "choices": [{"index": 0, "message": message, "finish_reason": "stop", "logprobs": None}],
        "usage": COUNTS,
    }
    assert ChatCompletion.model_validate(body, strict=True).choices[0].message.content == "Paris"


def test_the_first_chat_chunk_carries_the_role_with_the_first_text() -> None:
    renderer = ChatRenderer(HEAD)
    first = event(renderer.text(0, "Pa", first=True))
    later = event(renderer.text(0, "ris", first=False))
    assert first["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": "Pa"}, "finish_reason": None, "logprobs": None}
    ]
    assert later["choices"][0]["delta"] == {"content": "ris"}


def test_the_last_chunk_of_a_choice_carries_the_finish_reason_and_no_text() -> None:
    assert event(ChatRenderer(HEAD).end(1, "length", first=False))["choices"] == [
        {"index": 1, "delta": {}, "finish_reason": "length", "logprobs": None}
    ]
    assert event(CompletionRenderer(HEAD).end(1, "stop", first=False))["choices"] == [
        {"index": 1, "text": "", "finish_reason": "stop", "logprobs": None}
    ]


def test_a_chat_choice_without_any_text_names_its_role_at_its_end() -> None:
    choice = event(ChatRenderer(HEAD).end(0, "stop", first=True))["choices"][0]
    assert choice["delta"] == {"role": "assistant", "content": ""}


@pytest.mark.parametrize("renderer", renderers(include_usage=False), ids=["completion", "chat"])
def test_chunks_have_no_usage_unless_it_was_asked_for(renderer: Renderer) -> None:
    for data in (renderer.text(0, "a", first=True, usage=USAGE), renderer.end(0, "stop", first=False)):
        assert "usage" not in event(data)


@pytest.mark.parametrize("renderer", renderers(include_usage=True), ids=["completion", "chat"])
def test_usage_asked_for_is_null_until_the_chunk_without_choices(renderer: Renderer) -> None:
    assert event(renderer.text(0, "a", first=True))["usage"] is None
    assert event(renderer.end(0, "stop", first=False))["usage"] is None
    last = event(renderer.usage(USAGE))
    assert (last["choices"], last["usage"]) == ([], COUNTS)


@pytest.mark.parametrize("renderer", renderers(include_usage=True), ids=["completion", "chat"])
def test_continuous_usage_is_in_every_chunk(renderer: Renderer) -> None:
    assert event(renderer.text(0, "a", first=True, usage=USAGE))["usage"] == COUNTS
    assert event(renderer.end(0, "stop", first=False, usage=USAGE))["usage"] == COUNTS


def chunks(renderer: Renderer) -> list[dict[str, Any]]:
    return [
        event(renderer.text(0, "a", first=True)),
        event(renderer.text(0, "b", first=False, usage=USAGE)),
        event(renderer.end(0, "length", first=False)),
        event(renderer.usage(USAGE)),
    ]


def test_openais_models_accept_every_chunk() -> None:
    for chunk in chunks(ChatRenderer(HEAD, include_usage=True)):
        ChatCompletionChunk.model_validate(chunk, strict=True)
    # Completion models the plain reply, whose reason is never null; the SDK does not validate chunks.
    for chunk in chunks(CompletionRenderer(HEAD, include_usage=True))[2:]:
        Completion.model_validate(chunk, strict=True)


@given(text=st.text())
def test_any_text_survives_in_one_event_of_one_line(text: str) -> None:
    assert event(ChatRenderer(HEAD).text(0, text, first=False))["choices"][0]["delta"]["content"] == text
    assert event(CompletionRenderer(HEAD).text(0, text, first=False))["choices"][0]["text"] == text


def test_ids_say_what_they_are_of_and_differ() -> None:
    assert completion_id().startswith("cmpl-")
    assert chat_id().startswith("chatcmpl-")
    assert len({completion_id() for _ in range(100)}) == 100


def test_the_model_list_has_openais_shape_and_the_context_length() -> None:
    card = ModelCard("org/tiny", 1_700_000_000, 2048)
    listed = json.loads(model_list([card]))
    assert listed["object"] == "list"
    assert listed["data"] == [json.loads(model_card(card))]
    assert Model.model_validate(listed["data"][0], strict=True).id == "org/tiny"
    assert listed["data"][0]["max_model_len"] == 2048
    assert listed["data"][0]["owned_by"] == "paceline"


def test_the_marks_of_a_stream_are_sse() -> None:
    assert DONE == b"data: [DONE]\n\n"
    assert KEEP_ALIVE.startswith(b":")
    assert KEEP_ALIVE.endswith(b"\n\n")
