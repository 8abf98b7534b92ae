"""A JSON list that is made a few items at a time, by work that can be interrupted."""

from collections.abc import Sequence
from typing import Any

import msgspec
from msgspec import Raw


class JsonList:
    """A list of which each batch of items is JSON as soon as it is added."""

    def __init__(self) -> None:
        self._parts: list[bytes] = []

    def add(self, items: Sequence[Any]) -> None:
        """Take some items more, at least one."""
        self._parts.append(msgspec.json.encode(items)[1:-1])

    def whole(self) -> Raw:
        """The list."""
        return Raw(b"[" + b",".join(self._parts) + b"]")
