"""The declared options as flags of the command line. Knows no option by name but the model's and the file's."""

from collections.abc import Callable
from typing import Any

import click
from msgspec import NODEFAULT, inspect

from server.config import Options
from server.environment import CONFIG, PREFIX
from server.paths import UserPath

Command = Callable[..., None]
FIELDS: dict[str, inspect.Field] = {
    field.name: field
    for field in inspect.type_info(Options).fields  # type: ignore[attr-defined]
}


def options(command: Command) -> Command:
    """Give a command a flag for every field of Options, and the configuration file."""
    for field in reversed(FIELDS.values()):
        if field.name != "model":
            command = _flag(field)(command)
    return click.option(
        "--config",
        type=UserPath(dir_okay=False),
        envvar=CONFIG,
        help="A TOML file with options; see configs/default.toml.",
    )(command)


class GroupedCommand(click.Command):
    """A command whose help shows the options under the groups they are declared in."""

    def format_options(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """Write a section for each group."""
        sections: dict[str, list[tuple[str, str]]] = {}
        for parameter in self.get_params(ctx):
            row = parameter.get_help_record(ctx)
            if row is not None and isinstance(parameter, click.Option):
                field = FIELDS.get(parameter.name or "")
                sections.setdefault(meta(field)["group"] if field else "General", []).append(row)
        sections["General"] = sections.pop("General")  # last
        for name, rows in sections.items():
            with formatter.section(name):
                formatter.write_dl(rows, col_max=34)

    def format_epilog(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:  # noqa: ARG002 - click's
        """Say where else options can be given."""
        formatter.write_paragraph()
        formatter.write_text(
            f"Each option is also a key of the --config file and a variable of the environment: --step-rows is "
            f"step_rows and {PREFIX}STEP_ROWS. Flags win over the environment, and it over the file. "
            "`paceline config` shows what is in force."
        )


def meta(field: inspect.Field) -> dict[str, Any]:
    """What the declaration says about a field: description, group, secret."""
    found: dict[str, Any] = {}
    type_ = field.type
    while isinstance(type_, inspect.Metadata):
        found |= (type_.extra_json_schema or {}) | (type_.extra or {})
        type_ = type_.type
    return found


def _flag(field: inspect.Field) -> Callable[[Command], Command]:
    """One option as click wants it; ranges are checked where all sources are, in `load`."""
    type_ = _bare(field.type)
    name = "--" + field.name.replace("_", "-")
    default = field.default if field.default not in (NODEFAULT, None, "", False) else None
    shown = f"  [default: {'yes' if default is True else default}]" if default is not None else ""
    several = isinstance(type_, inspect.ListType)
    return click.option(
        f"{name}/--no-{name[2:]}" if isinstance(type_, inspect.BoolType) else name,
        type=_click_type(type_),
        multiple=several,
        default=None,
        metavar=_metavar(type_, path=meta(field)["path"]),
        help=f"{meta(field)['description']}{'  [repeatable]' if several else ''}{shown}",
    )


def _bare(type_: inspect.Type) -> inspect.Type:
    """The type without what annotates it, and without None."""
    while isinstance(type_, inspect.Metadata):
        type_ = type_.type
    if isinstance(type_, inspect.UnionType):
        return _bare(next(t for t in type_.types if not isinstance(t, inspect.NoneType)))
    return type_


def _metavar(type_: inspect.Type, *, path: bool) -> str | None:
    if isinstance(type_, inspect.LiteralType | inspect.BoolType):
        return None
    if isinstance(type_, inspect.IntType | inspect.FloatType):
        return "N"
    return "PATH" if path else "TEXT"


def _click_type(type_: inspect.Type) -> click.ParamType[Any]:
    if isinstance(type_, inspect.LiteralType):
        return click.Choice([str(value) for value in type_.values])
    if isinstance(type_, inspect.BoolType):
        return click.BOOL
    if isinstance(type_, inspect.IntType):
        return click.INT
    return click.FLOAT if isinstance(type_, inspect.FloatType) else click.STRING
