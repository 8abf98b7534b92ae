"""Amounts of memory as people write them: `2GiB`, `1.5G`, `800M`, `0`. Pure."""

import re

SIZE = r"(\d+(\.\d+)?)\s*([kKmMgGtT]?)(i?[bB])?"
"""A number with a unit of 1024, 1024 squared and so on; the unit's second and third letter say nothing more."""


def bytes_of(text: str) -> int:
    """The bytes that a text matching SIZE speaks of."""
    found = re.fullmatch(SIZE, text)
    assert found is not None, text
    return int(float(found[1]) * 1024 ** " kmgt".index(found[3].lower() or " "))


def gib(size: int) -> str:
    """Bytes for people."""
    return f"{size / 2**30:.2f} GiB"
