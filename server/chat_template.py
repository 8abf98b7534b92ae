"""A model's chat template: messages to the text that the model reads. Knows no HTTP and no tokens.

Templates are Jinja2, written for `transformers`, and get here what they get there: trimmed blocks, loop controls,
`raise_exception`, `strftime_now`, a `tojson` that leaves letters alone, the special tokens' spellings. The template
engine of onnxruntime-genai is not used: it cannot call `.strip()`, `.split()` or `upper`, as many published templates
do.

The template is the operator's file and the messages are anybody's, so a rendering is bounded: no attributes of Python's
insides (the sandbox), ranges of 100,000 at the most (likewise), no more text than fits the context, no products that
blow up a string or a number.
"""

import json
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from secrets import token_hex
from typing import Any, NoReturn

import jinja2
import msgspec
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from scheduler.errors import ModelFolderError
from server.call import Chat, Message
from server.errors import BadRequest

RESERVED = {"messages", "tools", "documents", "add_generation_prompt", "continue_final_message"}
LARGEST = 1_000_000
"""Characters, items or digits that a product or a power may have."""


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
            self._template = _environment().from_string(source)
        except jinja2.TemplateError as error:
            raise ModelFolderError(f"the chat template cannot be read: {error}") from error
        self._special = dict(special)
        self._developer = "developer" if "developer" in source else "system"

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

    def _run(self, chat: Chat, mark: str, most: int) -> str | None:
        messages = [self._shown(message) for message in chat.messages]
        messages[-1]["content"] += mark
        variables = {**chat.variables, **self._special, "messages": messages, "tools": None, "documents": None}
        pieces, length = [], 0
        try:
            for piece in self._template.generate(variables, add_generation_prompt=chat.add_generation_prompt):
                pieces.append(piece)
                length += len(piece)
                if length > most:
                    return None
        except Exception as error:  # a template may raise anything: it is a program
            raise BadRequest(f"The model's chat template refuses these messages: {error}", param="messages") from error
        return "".join(pieces)

    def _shown(self, message: Message) -> dict[str, str]:
        role = self._developer if message.role == "developer" else message.role
        optional = {"name": message.name, "tool_call_id": message.tool_call_id}
        return {"role": role, "content": message.content} | {key: value for key, value in optional.items() if value}


class _Sandbox(ImmutableSandboxedEnvironment):
    """Jinja2's sandbox, which bounds ranges, with bounded products and powers as well."""

    intercepted_binops = frozenset({"*", "**"})

    def call_binop(  # its parent's signature
        self,
        context: jinja2.runtime.Context,
        operator: str,
        left: Any,  # noqa: ANN401 - a template's values
        right: Any,  # noqa: ANN401
    ) -> Any:  # noqa: ANN401
        """Compute it, unless an operand is too large."""
        if _size(operator, left, right) > LARGEST:
            raise jinja2.exceptions.SecurityError(f"the result of {operator} is too large")
        return super().call_binop(context, operator, left, right)


def _size(operator: str, left: Any, right: Any) -> int:  # noqa: ANN401 - a template's values
    """Roughly how many characters, items or digits a product or a power has."""
    if operator == "**":
        return len(str(left)) * right if isinstance(left, int) and isinstance(right, int) else 0
    for value, factor in ((left, right), (right, left)):
        if isinstance(value, str | list | tuple) and isinstance(factor, int):
            return len(value) * factor
    return 0


class _Generation(Extension):
    """`{% generation %}` marks the assistant's words for training; here they are just shown."""

    tags = {"generation"}  # noqa: RUF012 - as its parent declares it

    def parse(self, parser: Parser) -> list[nodes.Node]:
        """The block's own nodes."""
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


def _raise_exception(message: object) -> NoReturn:
    raise jinja2.TemplateError(str(message))


def _strftime_now(form: str) -> str:
    return datetime.now().astimezone().strftime(form)


def _tojson(value: object, ensure_ascii: bool = False, indent: int | None = None, **options: Any) -> str:  # noqa: ANN401
    if indent is not None and indent > 16:
        raise jinja2.TemplateError("tojson indents by 16 at the most")
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, **options)


HELPERS = {"raise_exception": _raise_exception, "strftime_now": _strftime_now}


def _environment() -> jinja2.Environment:
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])
    environment.filters["tojson"] = _tojson
    environment.globals.update(HELPERS)
    return environment


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


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file's object; empty where there is no file.

    Raises:
        ModelFolderError: it is there, and is no JSON object.
    """
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise ModelFolderError(f"{path} cannot be read: {error}") from error
