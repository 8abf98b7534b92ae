"""What chat templates run in: Jinja2 as `transformers` sets it up, in a sandbox that bounds what they compute.

Knows no messages.
"""

import json
from datetime import datetime
from typing import Any, NoReturn

import jinja2
from jinja2 import nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

LARGEST = 1_000_000
"""Characters, items or digits that a product or a power may have."""


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


def environment() -> jinja2.Environment:
    """A new environment, with the helpers that templates expect."""
    environment = _Sandbox(trim_blocks=True, lstrip_blocks=True, extensions=[loopcontrols, _Generation])
    environment.filters["tojson"] = _tojson
    environment.globals.update(HELPERS)
    return environment
