"""Texts and counts to OpenAI's objects, plain or as SSE events, as bytes ready to send.

A stream of one choice is `text` any number of times, then `end`; of the whole reply, then `usage` where it was asked
for, and `DONE`:

    text    the choice's next characters; the first chunk of a chat choice names the role as well
    end     its finish reason, and no text
    usage   the counts, with no choices

`usage` is null in chunks before the last where it was asked for, and absent where it was not.

Knows no asyncio and no tokens, and makes no decision: what to send and when is the caller's.
"""

import secrets
import time
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

DONE = b"data: [DONE]\n\n"
KEEP_ALIVE = b": keep-alive\n\n"

FinishReason = Literal["stop", "length", "tool_calls"]


@dataclass(frozen=True, slots=True)
class Usage:
    """What a reply cost, in tokens; `completion` over all its choices, `cached` being part of `prompt`."""

    prompt: int
    completion: int
    cached: int = 0


@dataclass(frozen=True, slots=True)
class Choice:
    """One finished text of a plain reply."""

    index: int
    text: str
    finish_reason: FinishReason


@dataclass(frozen=True, slots=True)
class Head:
    """What every object of one reply says about it; `created` is in seconds since 1970."""

    id: str
    model: str
    created: int = field(default_factory=lambda: int(time.time()))


class Renderer(ABC):
    """One reply's objects; the two endpoints differ in how a choice looks."""

    PLAIN: ClassVar[str]
    CHUNK: ClassVar[str]

    def __init__(self, head: Head, *, include_usage: bool = False) -> None:
        self._head = head
        self._include_usage = include_usage

    def reply(self, choices: Sequence[Choice], usage: Usage) -> bytes:
        """The body of a plain reply."""
        whole = [self._whole(choice) for choice in choices]
        return msgspec.json.encode(self._object(self.PLAIN, whole, _counts(usage)))

    def text(self, index: int, text: str, *, first: bool, usage: Usage | None = None) -> bytes:
        """An event with a choice's next characters; `usage` only where every chunk shall carry the counts so far."""
        return self._chunk(self._piece(index, text, first), usage)

    def end(self, index: int, reason: FinishReason, *, first: bool, usage: Usage | None = None) -> bytes:
        """The event that ends a choice; `first` where it had no text at all."""
        return self._chunk(self._last(index, reason, first), usage)

    def usage(self, usage: Usage) -> bytes:
        """The event with the counts, after every choice has ended."""
        return _event(self._object(self.CHUNK, [], _counts(usage)))

    @abstractmethod
    def _whole(self, choice: Choice) -> Struct: ...

    @abstractmethod
    def _piece(self, index: int, text: str, first: bool) -> Struct: ...

    @abstractmethod
    def _last(self, index: int, reason: FinishReason, first: bool) -> Struct: ...

    def _chunk(self, choice: Struct, usage: Usage | None) -> bytes:
        counts = UNSET if not self._include_usage else None if usage is None else _counts(usage)
        return _event(self._object(self.CHUNK, [choice], counts))

    def _object(self, kind: str, choices: list[Struct], usage: "_Counts | UnsetType | None") -> "_Object":
        return _Object(self._head.id, kind, self._head.created, self._head.model, choices, usage)


class CompletionRenderer(Renderer):
    """`/v1/completions`."""

    PLAIN = CHUNK = "text_completion"

    def _whole(self, choice: Choice) -> Struct:
        return _TextChoice(choice.index, choice.text, choice.finish_reason)

    def _piece(self, index: int, text: str, first: bool) -> Struct:  # noqa: ARG002 - only a chat names its role
        return _TextChoice(index, text, None)

    def _last(self, index: int, reason: FinishReason, first: bool) -> Struct:  # noqa: ARG002 - as above
        return _TextChoice(index, "", reason)


class ChatRenderer(Renderer):
    """`/v1/chat/completions`."""

    PLAIN = "chat.completion"
    CHUNK = "chat.completion.chunk"

    def _whole(self, choice: Choice) -> Struct:
        return _ChatChoice(choice.index, _Message(choice.text), choice.finish_reason)

    def _piece(self, index: int, text: str, first: bool) -> Struct:
        return _ChunkChoice(index, _Delta("assistant" if first else UNSET, text), None)

    def _last(self, index: int, reason: FinishReason, first: bool) -> Struct:
        return _ChunkChoice(index, _Delta("assistant", "") if first else _Delta(), reason)


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A served model, as `/v1/models` shows it."""

    id: str
    created: int
    max_model_len: int
    owned_by: str = "paceline"


def model_card(card: ModelCard) -> bytes:
    """The body of `/v1/models/{id}`."""
    return msgspec.json.encode(_card(card))


def model_list(cards: Sequence[ModelCard]) -> bytes:
    """The body of `/v1/models`."""
    return msgspec.json.encode({"object": "list", "data": [_card(card) for card in cards]})


def completion_id() -> str:
    """A new id of a completion, not guessable, because it can cancel its request."""
    return f"cmpl-{secrets.token_hex(16)}"


def chat_id() -> str:
    """A new id of a chat completion."""
    return f"chatcmpl-{secrets.token_hex(16)}"


class _Details(Struct, frozen=True):
    cached_tokens: int


class _Counts(Struct, frozen=True):
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int
    prompt_tokens_details: _Details


class _TextChoice(Struct, frozen=True):
    index: int
    text: str
    finish_reason: str | None
    logprobs: None = None


class _Message(Struct, frozen=True):
    content: str
    role: str = "assistant"
    refusal: None = None


class _ChatChoice(Struct, frozen=True):
    index: int
    message: _Message
    finish_reason: str
    logprobs: None = None


class _Delta(Struct, frozen=True):
    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


class _ChunkChoice(Struct, frozen=True):
    index: int
    delta: _Delta
    finish_reason: str | None
    logprobs: None = None


class _Object(Struct, frozen=True):
    id: str
    object: str
    created: int
    model: str
    choices: list[Struct]
    usage: _Counts | UnsetType | None


def _counts(usage: Usage) -> _Counts:
    return _Counts(usage.prompt, usage.completion, usage.prompt + usage.completion, _Details(usage.cached))


def _event(object_: _Object) -> bytes:
    return b"data: " + msgspec.json.encode(object_) + b"\n\n"


def _card(card: ModelCard) -> dict[str, Any]:
    return {
        "id": card.id,
        "object": "model",
        "created": card.created,
        "owned_by": card.owned_by,
        "max_model_len": card.max_model_len,
    }
