"""Every field of the openai SDK's requests is honoured, ignored by name or refused by name."""

from typing import Any

import pytest
from msgspec import Struct
from openai.types import chat, completion_create_params
from openai.types.chat import completion_create_params as chat_create_params

from server.bodies import IGNORED, NOT_YET, ChatBody, CompletionBody, StreamOptions
from server.message_bodies import MESSAGE_IGNORED, PART_IGNORED, MessageBody, RefusalPart, TextPart


def keys(shape: Any) -> frozenset[str]:  # noqa: ANN401 - a TypedDict's class
    found: frozenset[str] = shape.__required_keys__ | shape.__optional_keys__
    return found


@pytest.mark.parametrize(
    ("shape", "body"),
    [
        (completion_create_params.CompletionCreateParamsNonStreaming, CompletionBody),
        (completion_create_params.CompletionCreateParamsStreaming, CompletionBody),
        (chat_create_params.CompletionCreateParamsNonStreaming, ChatBody),
        (chat_create_params.CompletionCreateParamsStreaming, ChatBody),
    ],
)
def test_every_field_of_a_request_is_known(shape: Any, body: type[Struct]) -> None:  # noqa: ANN401
    assert len(keys(shape)) > 10
    assert keys(shape) <= {*body.__struct_fields__, *IGNORED}


def test_no_field_is_both_ignored_and_declared() -> None:
    assert not IGNORED.keys() & {*CompletionBody.__struct_fields__, *ChatBody.__struct_fields__}
    assert not IGNORED.keys() & NOT_YET.keys()
    assert not MESSAGE_IGNORED.keys() & set(MessageBody.__struct_fields__)
    assert not PART_IGNORED.keys() & set(TextPart.__struct_fields__)


@pytest.mark.parametrize(
    ("shape", "body", "ignored"),
    [
        (chat.ChatCompletionStreamOptionsParam, StreamOptions, {}),
        (chat.ChatCompletionSystemMessageParam, MessageBody, MESSAGE_IGNORED),
        (chat.ChatCompletionDeveloperMessageParam, MessageBody, MESSAGE_IGNORED),
        (chat.ChatCompletionUserMessageParam, MessageBody, MESSAGE_IGNORED),
        (chat.ChatCompletionAssistantMessageParam, MessageBody, MESSAGE_IGNORED),
        (chat.ChatCompletionToolMessageParam, MessageBody, MESSAGE_IGNORED),
        (chat.ChatCompletionContentPartTextParam, TextPart, PART_IGNORED),
        (chat.ChatCompletionContentPartRefusalParam, RefusalPart, PART_IGNORED),
    ],
)
def test_every_key_inside_a_request_is_known(shape: Any, body: type[Struct], ignored: dict[str, str]) -> None:  # noqa: ANN401
    assert keys(shape)
    assert keys(shape) <= {*body.__struct_fields__, body.__struct_config__.tag_field, *ignored}


def test_every_key_of_an_answer_can_be_sent_back() -> None:
    for answer in (chat.ChatCompletionMessage, chat.ParsedChatCompletionMessage):
        assert answer.model_fields.keys() <= {*MessageBody.__struct_fields__, *MESSAGE_IGNORED}
