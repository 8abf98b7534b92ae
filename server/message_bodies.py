"""The messages of a chat as clients send them, declared once, with what is ignored of them and what is refused.

A message that came from a server, this one or another, is sent back with whatever that server put in: what says nothing
to a model that reads text is ignored, at any time, and so is every key of an assistant's message that is not a known
one written wrong.
"""

import difflib
from collections.abc import Mapping
from functools import lru_cache
from typing import Annotated, Any

from msgspec import Meta, Struct

from server.call import Role
from server.unknown import Tolerant

MESSAGE_IGNORED = {
    **dict.fromkeys(("id", "index", "object", "type", "status", "model"), "a reply's bookkeeping"),
    **dict.fromkeys(("created", "created_at", "timestamp", "metadata"), "a client's bookkeeping"),
    **dict.fromkeys(("reasoning", "reasoning_content", "reasoning_details", "thinking"), "thoughts are not sent back"),
    **dict.fromkeys(("thinking_blocks", "reasoning_text", "thought_signature"), "thoughts are not sent back"),
    **dict.fromkeys(("annotations", "citations", "parsed", "context"), "made of the text by a server"),
    **dict.fromkeys(("cache_control", "prompt_cache_breakpoint"), "prefixes are found by content"),
    **dict.fromkeys(("provider_specific_fields", "extra_content", "logprobs", "weight"), "of another server"),
}
"""Keys of messages that are ignored on purpose, whatever the role, each for its reason."""

MESSAGE_NOT_YET = ("tool_calls", "function_call", "audio", "images")
"""Keys that are refused by name, unless null or empty."""

PART_IGNORED = {
    **dict.fromkeys(("cache_control", "prompt_cache_breakpoint"), "prefixes are found by content"),
    **dict.fromkeys(("annotations", "citations", "logprobs"), "made of the text by a server"),
    **dict.fromkeys(("id", "index", "metadata", "providerOptions", "provider_options"), "of another server"),
}
"""Keys of content parts that are ignored on purpose."""

NEAR = 0.8
"""How much a name must be like a known one (difflib's ratio) to be that one written wrong."""


class TextPart(Tolerant, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="text"):
    """A piece of a message's text."""

    text: str

    @classmethod
    def lets_pass(cls, name: str, whole: Mapping[str, Any]) -> bool:  # noqa: ARG003 - its parent's signature
        """What other servers' prompt caches and replies have in a part."""
        return name in PART_IGNORED


class InputTextPart(TextPart, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="input_text"):
    """The same, as the Responses API calls it."""


class OutputTextPart(TextPart, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="output_text"):
    """The same, of an answer."""


class RefusalPart(Tolerant, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="refusal"):
    """What an earlier answer refused with: text as well."""

    refusal: str

    @classmethod
    def lets_pass(cls, name: str, whole: Mapping[str, Any]) -> bool:  # noqa: ARG003 - its parent's signature
        """As in other text."""
        return name in PART_IGNORED


class UnreadPart(Struct, frozen=True, tag_field="type"):
    """A part that is known, but not for its text."""


class ThinkingPart(UnreadPart, frozen=True, tag="thinking"):
    """Thoughts of an earlier answer, which are not sent back to a model."""


class ReasoningPart(UnreadPart, frozen=True, tag="reasoning"):
    """The same, by another name."""


class RedactedPart(UnreadPart, frozen=True, tag="redacted_thinking"):
    """The same, encrypted."""


class ImagePart(UnreadPart, frozen=True, tag="image_url"):
    """An image."""


class AudioPart(UnreadPart, frozen=True, tag="input_audio"):
    """A sound."""


class FilePart(UnreadPart, frozen=True, tag="file"):
    """A file."""


Thoughts = ThinkingPart | ReasoningPart | RedactedPart
Part = TextPart | InputTextPart | OutputTextPart | RefusalPart | Thoughts | ImagePart | AudioPart | FilePart


def about(text: str) -> Meta:
    """A field's meaning, for the API's description."""
    return Meta(description=text)


class MessageBody(Tolerant, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message of a chat."""

    role: Role
    content: Annotated[str | list[Part] | None, about("Text, or parts; an assistant's may be null or empty.")] = None
    name: str | None = None
    tool_call_id: str | None = None
    refusal: Annotated[str | None, about("What an answer refused with; it is the text where there is no other.")] = None
    tool_calls: Annotated[Any, about("Refused, unless null or empty.")] = None
    function_call: Annotated[Any, about("Refused, unless null or empty.")] = None
    audio: Annotated[Any, about("Refused, unless null or empty.")] = None
    images: Annotated[Any, about("Refused, unless null or empty.")] = None

    @classmethod
    def lets_pass(cls, name: str, whole: Mapping[str, Any]) -> bool:
        """What servers put into their replies, and clients into what they keep."""
        if name in MESSAGE_IGNORED:
            return True
        return whole.get("role") == "assistant" and not _written_wrong(name[:64])


@lru_cache(maxsize=1024)
def _written_wrong(name: str) -> bool:
    """Whether an undeclared key of a message is a declared one written wrong."""
    return bool(difflib.get_close_matches(name, MessageBody.__struct_fields__, n=1, cutoff=NEAR))
