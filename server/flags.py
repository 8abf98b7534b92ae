"""The declared options as flags of the command line. Knows no option by name but the model's and the file's."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import click
from msgspec import NODEFAULT, inspect

from server.config import PREFIX, Options

Command = Callable[..., None]


def options(command: Command) -> Command:
    """Give a command a flag for every field of Options, and the configuration file."""
    for field in reversed(inspect.type_info(Options).fields):  # type: ignore[attr-defined]
        if field.name != "model":
            command = _flag(field)(command)
    return click.option(
        "--config",
        type=click.Path(path_type=Path, dir_okay=False),
        envvar=f"{PREFIX}CONFIG",
        help=f"A TOML file with options; see configs/default.toml.  [env: {PREFIX}CONFIG]",
    )(command)


def _flag(field: inspect.Field) -> Callable[[Command], Command]:
    """One option as click wants it; ranges are checked where all sources are, in `load`."""
    metadata, type_ = _unwrapped(field.type)
    default = field.default if field.default not in (NODEFAULT, None, "") else None
    shown = f"  [default: {default}]" if default is not None else ""
    return click.option(
        "--" + field.name.replace("_", "-"),
        type=_click_type(type_),
        multiple=isinstance(type_, inspect.ListType),
        default=None,
        help=f"{metadata}{shown}",
    )


def _unwrapped(type_: inspect.Type) -> tuple[str, inspect.Type]:
    """The description and the bare type of an annotated field."""
    description = ""
    while isinstance(type_, inspect.Metadata):
        description = (type_.extra_json_schema or {}).get("description", description)
        type_ = type_.type
    return description, type_


def _click_type(type_: inspect.Type) -> click.ParamType[Any]:
    if isinstance(type_, inspect.UnionType):
        type_ = next(t for t in type_.types if not isinstance(t, inspect.NoneType))
    if isinstance(type_, inspect.LiteralType):
        return click.Choice([str(value) for value in type_.values])
    if isinstance(type_, inspect.IntType):
        return click.INT
    return click.FLOAT if isinstance(type_, inspect.FloatType) else click.STRING
