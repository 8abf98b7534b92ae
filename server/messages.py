"""A chat's messages, as they were sent, to frozen values. Every refusal names the message and the field."""

from server.call import Message
from server.errors import BadRequest
from server.message_bodies import MESSAGE_NOT_YET, MessageBody, Part, RefusalPart, TextPart, Thoughts


def parse_message(body: MessageBody, path: str) -> Message:
    """The message at a path of the request's body, or BadRequest."""
    for name in MESSAGE_NOT_YET:
        if getattr(body, name) not in (None, [], {}):
            raise BadRequest(f"{path}.{name} is not available on this server yet.", param=f"{path}.{name}")
    if body.content is None and body.role != "assistant":
        raise BadRequest(f"{path}.content is missing; it must be a string or text parts.", param=f"{path}.content")
    parts = _content(body.content or [], f"{path}.content")
    if body.refusal and not any(parts):
        parts = (plain_text(body.refusal, f"{path}.refusal"),)
    return Message(
        role=body.role,
        parts=parts,
        name=plain_text(body.name or "", f"{path}.name"),
        tool_call_id=plain_text(body.tool_call_id or "", f"{path}.tool_call_id"),
    )


def plain_text(text: str, path: str) -> str:
    """The text at a path of the request's body, or BadRequest where it holds what no text does."""
    if "\0" in text:
        raise BadRequest(f"{path} has a NUL character at position {text.index(chr(0))}; text cannot.", param=path)
    return text


def _content(content: str | list[Part], path: str) -> tuple[str, ...]:
    if isinstance(content, str):
        return (plain_text(content, path),)
    texts = (_part(part, f"{path}[{i}]") for i, part in enumerate(content))
    return tuple(text for text in texts if text is not None)


def _part(part: Part, path: str) -> str | None:
    """A part's text; None of one that is not for the model."""
    match part:
        case TextPart(text=text):
            return plain_text(text, f"{path}.text")
        case RefusalPart(refusal=text):
            return plain_text(text, f"{path}.refusal")
        case _ if isinstance(part, Thoughts):
            return None
        case _:
            kind = type(part).__struct_config__.tag
            raise BadRequest(f"{path} is of type {kind}; this server reads text parts only.", param=path)
