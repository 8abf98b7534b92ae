import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from openai.types import Completion, Model
from openai.types.chat import ChatCompletion, ChatCompletionChunk

from server.cards import ModelCard, model_card, model_list
from server.ids import chat_id, completion_id
from server.render import (
    DONE,
    KEEP_ALIVE,
    ChatRenderer,
    CompletionRenderer,
    FinishReason,
    Head,
    Part,
    Renderer,
    Usage,
)
from server.scores import Score, Spelled
from server.stretches import Work, at_once

HEAD = Head("id-1", "tiny", 1_700_000_000)
USAGE = Usage(prompt=5, completion=3, cached=2)
COUNTS = {
    "prompt_tokens": 5,
    "completion_tokens": 3,
    "total_tokens": 8,
    "prompt_tokens_details": {"cached_tokens": 2},
}
CHOICES = [Part(0, "Paris", "stop", first=True), Part(1, "Par", "length", first=True)]


def event(made: Work[bytes] | bytes) -> dict[str, Any]:
    data = made if isinstance(made, bytes) else at_once(made)
    assert data.startswith(b"data: ")
    assert data.endswith(b"\n\n")
    assert data.count(b"\n") == 2
    object_: dict[str, Any] = json.loads(data[6:])
    return object_


def text(index: int, text: str, *, first: bool = False) -> Part:
    return Part(index, text, None, first)


def end(index: int, reason: FinishReason, *, first: bool = False) -> Part:
    return Part(index, "", reason, first)


def renderers(include_usage: bool) -> list[Renderer]:
    return [
        CompletionRenderer(HEAD, include_usage=include_usage),
        ChatRenderer(HEAD, include_usage=include_usage),
    ]


def test_a_plain_completion_has_openais_shape() -> None:
    body = json.loads(at_once(CompletionRenderer(HEAD).reply(CHOICES, USAGE)))
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
    body = json.loads(at_once(ChatRenderer(HEAD).reply(CHOICES[:1], USAGE)))
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
    first = event(renderer.chunk(text(0, "Pa", first=True)))
    later = event(renderer.chunk(text(0, "ris", first=False)))
    assert first["choices"] == [
        {"index": 0, "delta": {"role": "assistant", "content": "Pa"}, "finish_reason": None, "logprobs": None}
    ]
    assert later["choices"][0]["delta"] == {"content": "ris"}


def test_the_last_chunk_of_a_choice_carries_the_finish_reason_and_no_text() -> None:
    assert event(ChatRenderer(HEAD).chunk(end(1, "length", first=False)))["choices"] == [
        {"index": 1, "delta": {}, "finish_reason": "length", "logprobs": None}
    ]
    assert event(CompletionRenderer(HEAD).chunk(end(1, "stop", first=False)))["choices"] == [
        {"index": 1, "text": "", "finish_reason": "stop", "logprobs": None}
    ]


def test_a_chat_choice_without_any_text_names_its_role_at_its_end() -> None:
    choice = event(ChatRenderer(HEAD).chunk(end(0, "stop", first=True)))["choices"][0]
    assert choice["delta"] == {"role": "assistant", "content": ""}


@pytest.mark.parametrize("renderer", renderers(include_usage=False), ids=["completion", "chat"])
def test_chunks_have_no_usage_unless_it_was_asked_for(renderer: Renderer) -> None:
    for data in (renderer.chunk(text(0, "a", first=True), USAGE), renderer.chunk(end(0, "stop", first=False))):
        assert "usage" not in event(data)


@pytest.mark.parametrize("renderer", renderers(include_usage=True), ids=["completion", "chat"])
def test_usage_asked_for_is_null_until_the_chunk_without_choices(renderer: Renderer) -> None:
    assert event(renderer.chunk(text(0, "a", first=True)))["usage"] is None
    assert event(renderer.chunk(end(0, "stop", first=False)))["usage"] is None
    last = event(renderer.usage(USAGE))
    assert (last["choices"], last["usage"]) == ([], COUNTS)


@pytest.mark.parametrize("renderer", renderers(include_usage=True), ids=["completion", "chat"])
def test_continuous_usage_is_in_every_chunk(renderer: Renderer) -> None:
    assert event(renderer.chunk(text(0, "a", first=True), USAGE))["usage"] == COUNTS
    assert event(renderer.chunk(end(0, "stop", first=False), USAGE))["usage"] == COUNTS


def chunks(renderer: Renderer) -> list[dict[str, Any]]:
    return [
        event(renderer.chunk(text(0, "a", first=True))),
        event(renderer.chunk(text(0, "b", first=False), USAGE)),
        event(renderer.chunk(end(0, "length", first=False))),
        event(renderer.usage(USAGE)),
    ]


def test_openais_models_accept_every_chunk() -> None:
    for chunk in chunks(ChatRenderer(HEAD, include_usage=True)):
        ChatCompletionChunk.model_validate(chunk, strict=True)
    # Completion models the plain reply, whose reason is never null; the SDK does not validate chunks.
    for chunk in chunks(CompletionRenderer(HEAD, include_usage=True))[2:]:
        Completion.model_validate(chunk, strict=True)


@given(said=st.text(min_size=1))
def test_any_text_survives_in_one_event_of_one_line(said: str) -> None:
    assert event(ChatRenderer(HEAD).chunk(text(0, said)))["choices"][0]["delta"]["content"] == said
    assert event(CompletionRenderer(HEAD).chunk(text(0, said)))["choices"][0]["text"] == said


A, BROKEN = Spelled(5, "a", b"a", -0.5, 1), Spelled(7, "bytes:\\xe2", b"\xe2", -1.5, 2)
SCORES = [Score(Spelled(5, "a", b"a", None, 0), (), 0), Score(BROKEN, (A, BROKEN), 1)]
SCORED = Part(0, "a", "stop", True, SCORES[1:], SCORES)
PROMPT = [
    None,
    {
        "7": {"logprob": -1.5, "rank": 2, "decoded_token": "bytes:\\xe2"},
        "5": {"logprob": -0.5, "rank": 1, "decoded_token": "a"},
    },
]


def test_a_completion_s_logprobs_are_four_lists_and_the_first_of_a_prompt_is_null() -> None:
    part = Part(0, "a", "stop", True, SCORES)
    for body in (
        json.loads(at_once(CompletionRenderer(HEAD).reply([part], USAGE))),
        event(CompletionRenderer(HEAD).chunk(part)),
    ):
        assert body["choices"][0]["logprobs"] == {
            "tokens": ["a", "bytes:\\xe2"],
            "token_logprobs": [None, -1.5],
            "top_logprobs": [None, {"a": -0.5, "bytes:\\xe2": -1.5}],
            "text_offset": [0, 1],
        }


def test_a_chat_s_logprobs_name_each_token_with_its_bytes() -> None:
    body = json.loads(at_once(ChatRenderer(HEAD).reply([SCORED], USAGE)))
    a = {"token": "a", "logprob": -0.5, "bytes": [97]}
    broken = {"token": "bytes:\\xe2", "logprob": -1.5, "bytes": [0xE2]}
    assert body["choices"][0]["logprobs"] == {"content": [{**broken, "top_logprobs": [a, broken]}], "refusal": None}
    ChatCompletion.model_validate(body, strict=True)
    chunk = event(ChatRenderer(HEAD).chunk(SCORED))
    assert chunk["choices"][0]["logprobs"] == body["choices"][0]["logprobs"]
    ChatCompletionChunk.model_validate(chunk, strict=True)


def test_a_prompt_s_logprobs_stand_in_the_choice_of_a_completion_and_beside_those_of_a_chat() -> None:
    for whole in (True, False):
        completion, chat = (
            json.loads(at_once(r.reply([SCORED], USAGE))) if whole else event(r.chunk(SCORED))
            for r in (CompletionRenderer(HEAD), ChatRenderer(HEAD))
        )
        assert completion["choices"][0]["prompt_logprobs"] == PROMPT
        assert chat["prompt_logprobs"] == PROMPT


def test_tokens_that_look_alike_keep_the_likelier_value() -> None:
    twin = Spelled(9, "a", b"a", -3.0, 3)
    part = Part(0, "a", "stop", True, [Score(twin, (A,), 0)])
    body = json.loads(at_once(CompletionRenderer(HEAD).reply([part], USAGE)))
    assert body["choices"][0]["logprobs"]["top_logprobs"] == [{"a": -0.5}]


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
