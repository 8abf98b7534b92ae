"""Texts and counts to OpenAI's objects, plain or as SSE events, as bytes ready to send.

A stream of one choice is chunks with its next characters, the first of a chat naming the role as well, and then one
with its finish reason and no text; of the whole reply, then `usage` where it was asked for, and `DONE`.

`usage` is null in chunks before the last where it was asked for, and absent where it was not.

Knows no asyncio and no tokens, and makes no decision: what to send and when is the caller's. What may be long is work
that can be interrupted.
"""

import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from typing import ClassVar, Literal

import msgspec
from msgspec import UNSET, Struct, UnsetType

from server import sse
from server.render_logprobs import (
    ChatLogprobs,
    CompletionLogprobs,
    PromptLogprobs,
    chat_logprobs,
    completion_logprobs,
    prompt_logprobs,
)
from server.scores import Score
from server.stretches import Work, at_once

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
class Part:
    """A choice, or a chunk of it.

    Attributes:
        finish_reason: None in every chunk before the last.
        first: whether nothing of the choice came before.
        scores: of the tokens of the text, iterated over once; None where nobody asked.
        prompt_scores: of the prompt's tokens, to be told beside the text; None where nobody asked, or told already.
    """

    index: int
    text: str
    finish_reason: FinishReason | None = None
    first: bool = False
    scores: Iterable[Score] | None = None
    prompt_scores: Iterable[Score] | None = None


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

    def reply(self, choices: Sequence[Part], usage: Usage) -> Work[bytes]:
        """The body of a plain reply."""
        whole = []
        for choice in choices:
            whole.append((yield from self._whole(choice)))  # noqa: PERF401 - no comprehension may yield
        beside = yield from self._beside(choices)
        return msgspec.json.encode(self._object(self.PLAIN, whole, _counts(usage), beside))

    def chunk(self, part: Part, usage: Usage | None = None) -> Work[bytes]:
        """An event with a choice's next text or its end; `usage` only where every chunk shall carry the counts."""
        counts = UNSET if not self._include_usage else None if usage is None else _counts(usage)
        piece, beside = (yield from self._piece(part)), (yield from self._beside([part]))
        return (yield from _event(self._object(self.CHUNK, [piece], counts, beside)))

    def usage(self, usage: Usage) -> bytes:
        """The event with the counts, after every choice has ended."""
        return at_once(_event(self._object(self.CHUNK, [], _counts(usage), UNSET)))

    @abstractmethod
    def _whole(self, choice: Part) -> Work[Struct]: ...

    @abstractmethod
    def _piece(self, part: Part) -> Work[Struct]: ...

    def _beside(self, parts: Sequence[Part]) -> Work[PromptLogprobs | UnsetType]:  # noqa: ARG002 - a chat's has something
        """The prompt's logprobs, where they stand beside the choices."""
        yield
        return UNSET

    def _object(
        self,
        kind: str,
        choices: list[Struct],
        usage: "_Counts | UnsetType | None",
        prompt_logprobs: PromptLogprobs | UnsetType,
    ) -> "_Object":
        head = self._head
        return _Object(head.id, kind, head.created, head.model, choices, usage, prompt_logprobs)


class CompletionRenderer(Renderer):
    """`/v1/completions`."""

    PLAIN = CHUNK = "text_completion"

    def _whole(self, choice: Part) -> Work[Struct]:
        return self._piece(choice)

    def _piece(self, part: Part) -> Work[Struct]:
        logprobs = None if part.scores is None else (yield from completion_logprobs(part.scores))
        of_prompt = UNSET if part.prompt_scores is None else (yield from prompt_logprobs(part.prompt_scores))
        return _TextChoice(part.index, part.text, part.finish_reason, logprobs, of_prompt)


class ChatRenderer(Renderer):
    """`/v1/chat/completions`."""

    PLAIN = "chat.completion"
    CHUNK = "chat.completion.chunk"

    def _whole(self, choice: Part) -> Work[Struct]:
        logprobs = yield from _content(choice)
        return _ChatChoice(choice.index, _Message(choice.text), choice.finish_reason, logprobs)

    def _piece(self, part: Part) -> Work[Struct]:
        role = "assistant" if part.first else UNSET
        content = part.text if part.text or part.first else UNSET
        logprobs = yield from _content(part)
        return _ChunkChoice(part.index, _Delta(role, content), part.finish_reason, logprobs)

    def _beside(self, parts: Sequence[Part]) -> Work[PromptLogprobs | UnsetType]:
        scores = parts[0].prompt_scores if parts[0].index == 0 else None
        return UNSET if scores is None else (yield from prompt_logprobs(scores))


def _content(part: Part) -> Work[ChatLogprobs | None]:
    return None if part.scores is None else (yield from chat_logprobs(part.scores))


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
    logprobs: CompletionLogprobs | None
    prompt_logprobs: PromptLogprobs | UnsetType


class _Message(Struct, frozen=True):
    content: str
    role: str = "assistant"
    refusal: None = None


class _ChatChoice(Struct, frozen=True):
    index: int
    message: _Message
    finish_reason: str | None
    logprobs: ChatLogprobs | None


class _Delta(Struct, frozen=True):
    role: str | UnsetType = UNSET
    content: str | UnsetType = UNSET


class _ChunkChoice(Struct, frozen=True):
    index: int
    delta: _Delta
    finish_reason: str | None
    logprobs: ChatLogprobs | None


class _Object(Struct, frozen=True):
    id: str
    object: str
    created: int
    model: str
    choices: list[Struct]
    usage: _Counts | UnsetType | None
    prompt_logprobs: PromptLogprobs | UnsetType


def _counts(usage: Usage) -> _Counts:
    return _Counts(usage.prompt, usage.completion, usage.prompt + usage.completion, _Details(usage.cached))


def _event(object_: _Object) -> Work[bytes]:
    return sse.long_event(msgspec.json.encode(object_))
