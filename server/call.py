"""What a client asks for, as frozen and total values: parsed once by `server.schema`, never checked again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal

Role = Literal["system", "developer", "user", "assistant", "tool"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are chosen; `max_tokens` None is the rest of the context, `top_k` 0 is off."""

    max_tokens: int | None
    min_tokens: int
    temperature: float
    top_p: float
    top_k: int
    min_p: float
    frequency_penalty: float
    presence_penalty: float
    repetition_penalty: float
    logit_bias: tuple[tuple[int, float], ...]
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """What ends the text, beside the model's own end tokens."""

    strings: tuple[str, ...]
    token_ids: frozenset[int]
    ignore_eos: bool
    include: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Reporting:
    """What is told beside the new text; counts are of the likeliest tokens, and None tells nothing.

    Attributes:
        logprobs: of each new token, and of the prompt's where it is echoed.
        prompt_logprobs: of the prompt's tokens.
        echo: whether the prompt is part of the text.
    """

    logprobs: int | None
    prompt_logprobs: int | None
    echo: bool

    @property
    def of_prompt(self) -> int | None:
        """How much of the prompt has to be computed for all that."""
        counts = [self.prompt_logprobs, self.logprobs if self.echo else None]
        return max((count for count in counts if count is not None), default=None)


@dataclass(frozen=True, slots=True, kw_only=True)
class Streaming:
    """Whether to stream; `continuous_usage` implies `include_usage`."""

    wanted: bool
    include_usage: bool
    continuous_usage: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Handling:
    """How the request is treated; `timeout` is in seconds, `request_id` and `cache_salt` are empty where not given."""

    request_id: str
    priority: int
    timeout: float | None
    cache_salt: str


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What both endpoints' calls say; `model` is empty where the client named none, `n` is choices a prompt."""

    model: str
    n: int
    sampling: Sampling
    stopping: Stopping
    reporting: Reporting
    streaming: Streaming
    handling: Handling


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionCall(Call):
    """A completion of each of `prompts`, text or token ids."""

    prompts: tuple[str | tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message: the texts of its parts; `name` and `tool_call_id` are empty where it has none."""

    role: Role
    parts: tuple[str, ...]
    name: str = ""
    tool_call_id: str = ""

    @property
    def content(self) -> str:
        """Its text; parts are joined by line ends, as vLLM joins them."""
        return "\n".join(self.parts)


@dataclass(frozen=True, slots=True, kw_only=True)
class Chat:
    """A chat as the template takes it; `variables` are the client's own."""

    messages: tuple[Message, ...]
    add_generation_prompt: bool
    continue_final_message: bool
    variables: Mapping[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCall(Call):
    """The answer to a chat."""

    chat: Chat


@dataclass(frozen=True, slots=True, kw_only=True)
class TokenizeCall:
    """The tokens of a text or of a chat."""

    model: str
    source: str | Chat
    add_special_tokens: bool
    strings: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DetokenizeCall:
    """The text of tokens."""

    model: str
    tokens: tuple[int, ...]
