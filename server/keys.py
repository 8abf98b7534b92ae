"""API keys: kept as named hashes, compared in constant time. Knows no HTTP.

A key file has a line for each key, `name sha256:<hex>`; empty lines and those that begin with # count for nothing. The
keys that `new_key` makes carry 256 random bits, so that a plain SHA-256 of one tells nobody anything: there is no
dictionary to try.
"""

import hashlib
import hmac
import re
import secrets
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Self

from server.config import ConfigError

NAME = re.compile(r"[\w.@-]{1,64}", re.ASCII)
_LINE = re.compile(rf"({NAME.pattern})\s+sha256:([0-9a-f]{{64}})", re.ASCII)


def new_key() -> str:
    """A key that nobody can guess."""
    return "pl-" + secrets.token_urlsafe(32)


def key_line(name: str, key: str) -> str:
    """The line of a key file for a key."""
    return f"{name} sha256:{_hash(key)}"


def add_key(file: Path, name: str, key: str) -> None:
    """Add a key to a file, which is made for its owner alone where there is none.

    Raises ConfigError where the name is taken or the file cannot be written.
    """
    try:
        if file.exists() and name in _read(file).values():
            raise ConfigError(f"{file} has a key called {name}; delete its line first")
        file.touch(mode=0o600)
        with file.open("a", encoding="utf-8") as lines:
            lines.write(key_line(name, key) + "\n")
    except OSError as error:
        raise ConfigError(f"the key file {file} cannot be written: {error}") from error


class Keys:
    """The keys that are let in.

    Args:
        names: the name of each key by its hash, in hex.
    """

    def __init__(self, names: Mapping[str, str]) -> None:
        self._names = dict(names)

    @classmethod
    def load(cls, keys: Sequence[str], file: str) -> Self:
        """Those given in the clear, called key-1, key-2 and so on, and those of a file; an empty name is no file.

        Raises ConfigError where the file cannot be read or understood, or holds a name twice.
        """
        names = {_hash(key): f"key-{number}" for number, key in enumerate(keys, start=1)}
        if "" in keys:
            raise ConfigError("an api_key is empty")
        named = _read(Path(file)) if file else {}
        if file and not named:
            raise ConfigError(f"the key file {file} holds no key; make one with: paceline key NAME --file {file}")
        return cls(names | named)

    def __len__(self) -> int:
        """How many there are."""
        return len(self._names)

    def name_of(self, key: str) -> str | None:
        """The name of a key, or None; takes as long for a wrong key as for a right one."""
        given = _hash(key)
        found = None
        for known, name in self._names.items():
            if hmac.compare_digest(known, given):
                found = name
        return found


def _hash(key: str) -> str:
    return hashlib.sha256(key.encode(errors="surrogateescape")).hexdigest()


def _read(file: Path) -> dict[str, str]:
    try:
        lines = file.read_text(encoding="utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"the key file {file} cannot be read: {error}") from error
    names: dict[str, str] = {}
    for number, line in enumerate(lines, start=1):
        if not line.strip() or line.startswith("#"):
            continue
        match = _LINE.fullmatch(line.strip())
        if match is None:
            raise ConfigError(f"{file}, line {number}: not `name sha256:<64 hex digits>`")
        if match[1] in names.values():
            raise ConfigError(f"{file}, line {number}: the name {match[1]} is taken")
        names[match[2]] = match[1]
    return names
