"""Paths as people write them: `~` is the home folder, also where no shell has replaced it. Knows no option by name."""

import os
import pwd
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click


class NoHome(ValueError):
    """A path begins at a home folder, and there is none."""


class UserPath(click.Path):
    """A path of the command line as a `Path`, its `~` replaced: shells leave those in `--file=~/keys` and in quotes."""

    def __init__(self, **rules: Any) -> None:  # noqa: ANN401 - click.Path's
        super().__init__(path_type=Path, **rules)

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> Any:  # noqa: ANN401
        """The path, as click checks it."""
        try:
            return super().convert(expanded(os.fspath(value), os.environ), param, ctx)
        except NoHome as error:
            self.fail(str(error), param, ctx)


def expanded(path: str, environ: Mapping[str, str]) -> str:
    """The path with `~` replaced by the home folder, and `~name` by that user's; an unknown name stays as it is.

    Raises:
        NoHome: the user has no home folder.
    """
    first, _, rest = path.partition("/")
    if not first.startswith("~"):
        return path
    folder = home(environ) if first == "~" else _home_of(first[1:])
    if folder is None and first == "~":
        raise NoHome("there is no home folder for ~ (HOME is not set, and the user has no account): write it in full")
    return path if folder is None else os.path.join(folder, rest) if rest else folder


def home(environ: Mapping[str, str]) -> str | None:
    """The home folder: HOME's, else the account's; None where the user id has no account, as in some containers."""
    told = environ.get("HOME", "")
    if os.path.isabs(told):
        return told
    try:
        return pwd.getpwuid(os.getuid()).pw_dir or None
    except KeyError:
        return None


def _home_of(name: str) -> str | None:
    try:
        return pwd.getpwnam(name).pw_dir
    except KeyError:
        return None
