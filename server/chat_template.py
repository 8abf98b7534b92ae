"""A model's chat template: messages to the text that the model reads. Knows no HTTP and no tokens.

Templates are Jinja2, written for `transformers`, and get here what they get there: trimmed blocks, loop controls,
`raise_exception`, `strftime_now`, a `tojson` that leaves letters alone, the special tokens' spellings. The template
engine of onnxruntime-genai is not used: it cannot call `.strip()`, `.split()` or `upper`, as many published templates
do.

A message's content is a string to most templates, and a list of parts to some. Which it is, for each role, is found at
load, as llama.cpp finds it: where a string is not shown and a list of parts is, the template reads parts.

The template is the operator's file and the messages are anybody's, so a rendering is bounded: no attributes of Python's
insides (the sandbox), ranges of 100,000 at the most (likewise), no more text than fits the context, no products that
blow up a string or a number.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from secrets import token_hex
from typing import Any

import jinja2

from scheduler.errors import ModelFolderError
from server.call import Chat, Message, Role
from server.errors import BadRequest
from server.model_files import read_json
from server.template_environment import HELPERS, environment

RESERVED = {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}
Shown = dict[str, Any]
"""A message as a template sees it."""

PROBES: tuple[tuple[Role, ...], ...] = (
    ("user",),
    ("system", "user"),
    ("developer", "user"),
    ("user", "assistant", "user"),
    ("user", "assistant", "tool"),
)
"""Conversations that templates take, one for each role: the first of it that is none of those before."""

PROBED = 100_000
"""Characters of such a conversation at the most."""


class ChatTemplate:
    """A template, compiled.

    Where it does not know the role `developer`, its messages are `system` ones: OpenAI gave the role that other name,
    and templates drop or reject roles they do not know.

    Args:
        source: the template's text.
        special: variables that every rendering has: `bos_token` and the like.

    Raises:
        ModelFolderError: it is not a template.
    """

    def __init__(self, source: str, special: Mapping[str, str]) -> None:
        try:
            self._template = environment().from_string(source)
        except jinja2.TemplateError as error:
            raise ModelFolderError(f"the chat template cannot be read: {error}") from error
        self._special = dict(special)
        self._developer: Role = "developer" if "developer" in source else "system"
        self._by_parts: dict[Role, bool] = {}
        for roles in PROBES:
            role = next(role for role in roles if role not in self._by_parts)
            self._by_parts[role] = self._reads_parts(role, roles)

    @classmethod
    def from_folder(cls, folder: Path) -> "ChatTemplate | None":
        """The folder's template: chat_template.jinja, else tokenizer_config.json's; None where it has neither."""
        config = read_json(folder / "tokenizer_config.json")
        path = folder / "chat_template.jinja"
        try:
            source = path.read_text(encoding="utf-8") if path.exists() else _named(config.get("chat_template"))
        except (OSError, UnicodeDecodeError) as error:
            raise ModelFolderError(f"{path} cannot be read: {error}") from error
        return cls(source, _special_tokens(config)) if source.strip() else None

    def render(self, chat: Chat, most: int) -> str | None:
        """The chat as the model reads it; None where that is longer than `most` characters.

        BadRequest with the template's words where it refuses the messages.
        """
        if sum(len(message.content) + 1 for message in chat.messages) > most:
            return None
        if clash := (RESERVED | self._special.keys() | HELPERS.keys()) & chat.variables.keys():
            said = f"chat_template_kwargs sets {min(clash)}, which is not the client's."
            raise BadRequest(said, param="chat_template_kwargs")
        mark = token_hex(16) if chat.continue_final_message else ""
        text = self._run(chat, mark, most + len(mark))
        if text is None or not mark:
            return text
        if mark not in text:
            raise BadRequest(
                "The model's chat template does not show the last message.", param="continue_final_message"
            )
        return text[: text.rindex(mark)]

    def _reads_parts(self, role: Role, roles: Sequence[Role]) -> bool:
        """Whether a role's content is a list to the template; it is what a user's is where nothing shows it."""
        needle = token_hex(8)
        for by_parts in (False, True):
            self._by_parts[role] = by_parts
            messages = [Message(role=one, parts=(needle if one == role else "x",)) for one in roles]
            try:
                text = self._generate(self._variables([self._shown(m) for m in messages]), PROBED)
            except Exception:  # a template may raise anything: it is a program
                continue
            if text is not None and needle in text.lower() and "'type'" not in text:  # a list as Python writes it
                return by_parts
        return role != "user" and self._by_parts["user"]

    def _variables(self, messages: list[Shown]) -> dict[str, Any]:
        return {**self._special, "messages": messages, "tools": None, "documents": None}

    def _run(self, chat: Chat, mark: str, most: int) -> str | None:
        messages = [self._shown(message) for message in chat.messages]
        _append(messages[-1], mark)
        variables = {**chat.variables, **self._variables(messages)}
        try:
            return self._generate(variables | {"add_generation_prompt": chat.add_generation_prompt}, most)
        except Exception as error:  # a template may raise anything: it is a program
            raise BadRequest(f"The model's chat template refuses these messages: {error}", param="messages") from error

    def _generate(self, variables: dict[str, Any], most: int) -> str | None:
        """What the template makes of the variables; None where that is longer than `most` characters."""
        pieces, length = [], 0
        for piece in self._template.generate(variables):
            pieces.append(piece)
            length += len(piece)
            if length > most:
                return None
        return "".join(pieces)

    def _shown(self, message: Message) -> Shown:
        content: str | list[dict[str, str]] = message.content
        if self._by_parts[message.role]:
            content = [{"type": "text", "text": text} for text in message.parts or ("",)]
        role = self._developer if message.role == "developer" else message.role
        optional = {"name": message.name, "tool_call_id": message.tool_call_id}
        return {"role": role, "content": content} | {key: value for key, value in optional.items() if value}


def _append(message: Shown, mark: str) -> None:
    """Put a mark behind the last of a message's text."""
    if isinstance(message["content"], str):
        message["content"] += mark
    else:
        message["content"][-1]["text"] += mark


def _named(template: object) -> str:
    """The text of a configuration's template; of several with names, the one called default."""
    if isinstance(template, list):
        named = {entry.get("name"): entry.get("template") for entry in template if isinstance(entry, dict)}
        template = named.get("default")
    return template if isinstance(template, str) else ""


def _special_tokens(config: Mapping[str, Any]) -> dict[str, str]:
    """`bos_token` and the like: strings, or objects with their content."""
    found = {}
    for name, value in config.items():
        content = value.get("content") if isinstance(value, dict) else value
        if name.endswith("_token") and isinstance(content, str):
            found[name] = content
    return found
