"""Where imported models are kept. Knows no model."""

import logging
import os
import stat
import tempfile
from collections.abc import Mapping
from pathlib import Path

from server.config import ConfigError, Options
from server.paths import home

LOGGER = logging.getLogger("paceline.server")


def cache_folder(options: Options) -> Path:
    """The folder that the options name, else the usual one; says so where it is neither.

    Raises:
        ConfigError: there is no place that can be written.
    """
    if options.cache_dir:
        return Path(options.cache_dir)
    try:
        folder, word = user_cache(os.environ)
    except OSError as error:
        message = f"there is no place to keep imported models ({error})"
        raise ConfigError(f"{message}: choose one with --cache-dir") from error
    if word:
        LOGGER.warning("%s", word)
    return folder


def user_cache(environ: Mapping[str, str]) -> tuple[Path, str | None]:
    """The folder for what can be made again, and a word about it where it is not the usual one.

    It is `$XDG_CACHE_HOME/paceline`, else `~/.cache/paceline`. Where that is not there and cannot be made, since there
    is no home folder or it is not the user's to write, it is a folder of the user's own among the temporary ones.
    """
    base, own = environ.get("XDG_CACHE_HOME", ""), home(environ)
    if not os.path.isabs(base):
        base = os.path.join(own, ".cache") if own else ""
    usual = Path(base) / "paceline"
    if base and (usual.exists() or _can_be_made(usual)):
        return usual, None
    folder = _temporary()
    reason = f"{usual} cannot be made" if base else "there is no home folder"
    return folder, f"{reason}: imported models are kept in {folder}; --cache-dir chooses a folder that stays"


def _can_be_made(folder: Path) -> bool:
    there = next(parent for parent in folder.parents if parent.exists())
    return there.is_dir() and os.access(there, os.W_OK | os.X_OK)


def _temporary() -> Path:
    """A folder among the temporary ones that no other user can have prepared, if need be with a name of its own."""
    folder = Path(tempfile.gettempdir()) / f"paceline-{os.getuid()}"
    try:
        folder.mkdir(mode=0o700)
    except FileExistsError:
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o022:
            return Path(tempfile.mkdtemp(prefix=f"{folder.name}-"))
    return folder
