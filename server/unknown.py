"""What is done about undeclared fields, at whatever depth: refused with the nearest name, or told and dropped.

A declared shape that names some on purpose says so by `lets_pass`. Knows no field of its own.
"""

import difflib
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

from msgspec import Struct, inspect

from server.errors import BadRequest

LOGGER = logging.getLogger("paceline.requests")
OnUnknown = Callable[[BadRequest], None]

MOST_UNKNOWN = 256
"""Different undeclared names of a body at the most."""


class Tolerant(Struct, frozen=True):
    """A shape that lets some undeclared fields pass without a word."""

    @classmethod
    def lets_pass(cls, name: str, whole: Mapping[str, Any]) -> bool:
        """Whether an undeclared field is ignored on purpose, in an object with all these fields."""
        raise NotImplementedError


def refuse(error: BadRequest) -> None:
    """What is done about an unknown field, unless it shall be let through."""
    raise error


def warn(error: BadRequest) -> None:
    """What is done about an unknown field where clients send more than is known."""
    LOGGER.warning("ignored: %s", error.message)


def unknown(name: str, known: Iterable[str], prefix: str = "") -> BadRequest:
    """The refusal of a field that is none."""
    near = difflib.get_close_matches(name[:64], known, n=1)
    hint = f" Did you mean {prefix}{near[0]}?" if near else ""
    return BadRequest(f"{prefix}{name[:64]} is not a field known here.{hint}", param=prefix + name[:64])


class Unknowns:
    """The undeclared names that a body has, each told once, with the first place where it stands.

    A body of millions of them is refused early: the search for the nearest name is slow.
    """

    def __init__(self, on_unknown: OnUnknown) -> None:
        self._on_unknown = on_unknown
        self._met: set[str] = set()
        self._told: set[str] = set()
        self._placed: Callable[[BadRequest], BadRequest] | None = None

    @contextmanager
    def within(self, placed: Callable[[BadRequest], BadRequest]) -> Iterator[None]:
        """For the length of a block, names are of a part of the body, whose place `placed` puts into what is told."""
        self._placed = placed
        try:
            yield
        finally:
            self._placed = None

    def count(self, name: str) -> None:
        """Take note of a name, or raise BadRequest where there are too many."""
        self._met.add(name)
        if len(self._met) > MOST_UNKNOWN:
            said = f"The body has more than {MOST_UNKNOWN} fields that are not known here; send those of the API alone."
            raise BadRequest(said, param=name[:64])

    def tell(self, name: str, known: Iterable[str], prefix: str = "") -> None:
        """Say that a name is none of the known ones, unless it was said before."""
        self.count(name)
        if name not in self._told:
            self._told.add(name)
            error = unknown(name, known, prefix)
            self._on_unknown(error if self._placed is None else self._placed(error))


def pruned(value: Any, info: inspect.Type, path: str, unknowns: Unknowns) -> Any:  # noqa: ANN401 - any JSON
    """JSON without the fields that its declared type does not have.

    What is of another type than declared is left for the decoder to refuse.
    """
    match info:
        case inspect.Metadata(type=inner):
            return pruned(value, inner, path, unknowns)
        case inspect.UnionType(types=types):
            fitting = next((type_ for type_ in types if _fits(value, type_)), None)
            return value if fitting is None else pruned(value, fitting, path, unknowns)
        case inspect.ListType(item_type=item) if isinstance(value, list):
            return [pruned(one, item, f"{path}[{i}]", unknowns) for i, one in enumerate(value)]
        case inspect.StructType() if isinstance(value, dict):
            return _known_part(value, info, path, unknowns)
        case _:
            return value


def _known_part(whole: dict[str, Any], info: inspect.StructType, path: str, unknowns: Unknowns) -> dict[str, Any]:
    declared = {field.encode_name: field.type for field in info.fields}
    kept = {}
    for name, value in whole.items():
        if name in declared:
            kept[name] = pruned(value, declared[name], f"{path}.{name}", unknowns)
            continue
        if name == info.tag_field or not info.forbid_unknown_fields:
            kept[name] = value
            continue
        unknowns.count(name)
        if not (issubclass(info.cls, Tolerant) and info.cls.lets_pass(name, whole)):
            unknowns.tell(name, declared, f"{path}.")
    return kept


def _fits(value: Any, info: inspect.Type) -> bool:  # noqa: ANN401 - any JSON
    """Whether it is the alternative of a union that a list or an object is meant for."""
    match info:
        case inspect.Metadata(type=inner):
            return _fits(value, inner)
        case inspect.ListType():
            return isinstance(value, list)
        case inspect.StructType(tag_field=field, tag=tag):
            return isinstance(value, dict) and (field is None or value.get(field) == tag)
        case _:
            return False
