"""Messages as clients and other servers write them, to what the template is given."""

import json

import pytest
from openai.types.chat import ChatCompletionMessage, ParsedChatCompletionMessage

from server.call import Chat
from server.errors import BadRequest
from server.schema import parse_chat
from server.unknown import MOST_UNKNOWN

USER = {"role": "user", "content": "hi"}


def chat(*messages: object) -> Chat:
    return parse_chat(json.dumps({"messages": messages}).encode()).chat


def content(**message: object) -> str:
    return chat(message).messages[0].content


def refused(*messages: object) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        chat(*messages)
    return caught.value


def test_text_parts_are_joined_by_line_ends() -> None:
    parts = [{"type": "text", "text": "a"}, {"type": "text", "text": "b"}]
    assert content(role="user", content=parts) == "a\nb"


@pytest.mark.parametrize("role", ["system", "developer", "user", "assistant", "tool"])
def test_every_role_is_known(role: str) -> None:
    assert chat({"role": role, "content": ""}).messages[0].role == role


def test_an_answer_of_the_sdk_can_be_sent_back() -> None:
    beside = {"id": "1", "reasoning_content": "hm", "cache_control": {}, "images": [], "a-vendor-s": {"own": [1]}}
    for text in ("x", "", None):
        answer = ChatCompletionMessage(role="assistant", content=text, **beside)  # type: ignore[arg-type]
        for dumped in (answer.model_dump(), answer.model_dump(exclude_none=True), answer.to_dict()):
            assert content(**dumped) == (text or "")
    parsed = ParsedChatCompletionMessage[None](role="assistant", content="x", parsed=None)
    assert content(**parsed.model_dump()) == "x"


def test_a_refusal_sent_back_is_what_was_said_where_nothing_else_was() -> None:
    assert content(role="assistant", content=None, refusal="No.") == "No."
    assert content(role="assistant", content="Yes.", refusal="No.") == "Yes."
    assert content(role="assistant", content=[{"type": "refusal", "refusal": "No."}]) == "No."
    assert refused({"role": "assistant", "refusal": "\0"}).param == "messages[0].refusal"


@pytest.mark.parametrize("empty", [None, "", [], [{"type": "text", "text": ""}]])
def test_an_assistant_s_turn_may_say_nothing(empty: object) -> None:
    assert content(role="assistant", content=empty) == content(role="assistant") == ""


def test_thoughts_are_left_out_and_the_text_of_other_apis_is_text() -> None:
    parts = [
        {"type": "thinking", "thinking": "hm", "signature": "x"},
        {"type": "reasoning", "text": "hm"},
        {"type": "output_text", "text": "a", "annotations": [], "logprobs": []},
        {"type": "text", "text": "b", "cache_control": {"type": "ephemeral"}},
        {"type": "input_text", "text": "c"},
    ]
    assert content(role="assistant", content=parts) == "a\nb\nc"


@pytest.mark.parametrize(
    ("message", "param"),
    [
        ({"role": "user"}, "messages[0].content"),
        ({"role": "user", "content": 3}, "messages[0].content"),
        ({"role": "user", "content": "a\0b"}, "messages[0].content"),
        ({"role": "user", "content": "a", "name": "\0"}, "messages[0].name"),
        ({"role": "user", "content": [{"type": "text", "text": "\0"}]}, "messages[0].content[0].text"),
        ({"role": "user", "content": [{"type": "text"}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "image_url", "image_url": {"url": ""}}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "input_audio"}]}, "messages[0].content[0]"),
        ({"role": "user", "content": [{"type": "smell"}]}, "messages[0].content[0].type"),
        ({"role": "robot", "content": "a"}, "messages[0].role"),
        ({"content": "a"}, "messages[0]"),
        ({"role": "user", "contant": "a"}, "messages[0].contant"),
        ({"role": "assistant", "content": "a", "tool_calls": [{}]}, "messages[0].tool_calls"),
        ("hi", "messages[0]"),
    ],
)
def test_a_wrong_message_is_refused_by_its_path(message: object, param: str) -> None:
    assert refused(message).param == param


def test_unknown_fields_are_let_through_and_told_at_every_depth() -> None:
    told: list[BadRequest] = []
    part = {"type": "text", "text": "a", "colour": 1}
    messages = [{**USER, "mood": 1}, {"role": "assistant", "content": [part, part], "contnt": {"deep": [1]}}]
    fields = {"messages": messages, "stream": True, "stream_options": {"include_usage": True, "x": 2}, "y": 3}
    call = parse_chat(json.dumps(fields).encode(), told.append)
    paths = ["messages[0].mood", "messages[1].content[0].colour", "messages[1].contnt"]  # each name once
    assert [error.param for error in told] == [*paths, "stream_options.x", "y"]
    assert [message.content for message in call.chat.messages] == ["hi", "a\na"]
    assert call.streaming.include_usage
    with pytest.raises(BadRequest) as caught:  # what is known is checked all the same
        parse_chat(json.dumps({"messages": [{"role": "user", "content": 3, "mood": 1}]}).encode(), told.append)
    assert caught.value.param == "messages[0].content"


@pytest.mark.parametrize("where", ["at the top", "in an assistant's message", "in many messages"])
def test_a_body_of_a_hundred_thousand_names_is_refused_before_each_is_compared(where: str) -> None:
    names = {f"k{i}k": 1 for i in range(100_000)}
    bodies: dict[str, dict[str, object]] = {
        "at the top": {"messages": [USER], **names},
        "in an assistant's message": {"messages": [{"role": "assistant", "content": "a", **names}]},
        "in many messages": {"messages": [{"role": "assistant", name: 1} for name in names]},
    }
    told: list[BadRequest] = []
    with pytest.raises(BadRequest, match=f"more than {MOST_UNKNOWN} fields"):
        parse_chat(json.dumps(bodies[where]).encode(), told.append)
    assert len(told) == (MOST_UNKNOWN if where == "at the top" else 0)


def test_a_name_in_every_message_of_a_long_chat_is_told_once() -> None:
    told: list[BadRequest] = []
    messages = [{**USER, "mood": i} for i in range(1000)]
    assert len(parse_chat(json.dumps({"messages": messages}).encode(), told.append).chat.messages) == 1000
    assert [error.param for error in told] == ["messages[0].mood"]
