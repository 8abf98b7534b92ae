"""JSON bodies to declared Structs, field by field, so that every refusal names its field. Knows no field of its own.

null is the same as absence, for every field. Types are JSON's: true is not 1, 1.0 is not an integer, "1" is not a
number; a client that means another thing than it wrote shall learn of it. An unknown field is refused with the
nearest known name.

Every refusal is a BadRequest whose `param` is the path of the field; only a body that is no JSON object has none.
"""

import json
import re
from collections.abc import Collection, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any, TypeVar

import msgspec
from msgspec import NODEFAULT, Raw, Struct, inspect

from server.errors import BadRequest
from server.large_values import LARGE, decode_large
from server.unknown import OnUnknown, Unknowns, pruned

Body = TypeVar("Body", bound=Struct)


@dataclass(frozen=True, slots=True)
class Field:
    """A declared field: how to decode it, and how to say what it must be."""

    decoder: msgspec.json.Decoder[Any]
    info: inspect.Type
    required: bool = False
    default: Any = None

    @property
    def words(self) -> str:
        """What it must be."""
        return _words(self.info)


ANYTHING = Field(msgspec.json.Decoder(), inspect.AnyType())


def read(body: bytes, shape: type[Body], ignored: Collection[str], on_unknown: OnUnknown) -> Body:
    """The body as a Struct of that shape, or BadRequest."""
    fields, unknowns = declared(shape), Unknowns(on_unknown)
    values: dict[str, Any] = {}
    for name, raw in _raw_fields(body).items():
        if len(raw) <= LARGE and bytes(raw).strip() == b"null":
            continue
        if name in fields:
            values[name] = _decode(name, raw, fields[name], unknowns)
        else:
            _decode(name, raw, ANYTHING, unknowns)  # it must be JSON all the same
            if name not in ignored:
                unknowns.tell(name, (*fields, *ignored))
    for name, field in fields.items():
        if field.required and name not in values:
            raise BadRequest(f"{name} is missing; it must be {field.words}.", param=name)
    return shape(**values)


@cache
def declared(shape: type[Struct]) -> dict[str, Field]:
    """The fields of a shape, by name."""
    return {
        info.name: Field(msgspec.json.Decoder(info.type), inspect.type_info(info.type), info.required, _default(info))
        for info in msgspec.structs.fields(shape)
    }


def _default(info: msgspec.structs.FieldInfo) -> object:
    if info.default_factory is not NODEFAULT:
        return info.default_factory()
    return info.default


def _raw_fields(body: bytes) -> dict[str, Raw]:
    if not body.strip():
        raise BadRequest("The body is empty; it must be a JSON object.")
    try:
        return msgspec.json.decode(body, type=dict[str, Raw])
    except msgspec.ValidationError as error:
        raise BadRequest("The body must be a JSON object.") from error
    except RecursionError as error:
        raise BadRequest("The body is nested too deeply.") from error
    except msgspec.DecodeError as error:
        if (name := _blamed(body)) is not None:
            said = f"{name} has a value that JSON does not allow: NaN, Infinity or a lone surrogate."
            raise BadRequest(said, param=name) from error
        raise BadRequest(f"The body is not valid JSON: {error}.") from error


BLAMED_BYTES = 2**20  # a larger body is not read a second time for the sake of a better message


def _blamed(body: bytes) -> str | None:
    """The field whose value alone is no JSON: NaN, Infinity, a lone surrogate. None if more than that is wrong."""
    if len(body) > BLAMED_BYTES:
        return None
    try:
        fields = json.loads(body)
        if not isinstance(fields, dict):
            return None
        for name, value in fields.items():
            try:
                msgspec.json.decode(json.dumps(value))
            except msgspec.DecodeError:
                return str(name)
    except (ValueError, RecursionError):
        pass
    return None


def _decode(name: str, raw: Raw, field: Field, unknowns: Unknowns) -> Any:  # noqa: ANN401 - each field's own type
    if len(raw) <= LARGE:
        return _decode_at_once(name, raw, field, unknowns)

    def decode(text: bytes) -> Any:  # noqa: ANN401 - each field's own type
        return _decode_at_once(name, text, field, unknowns)

    return decode_large(bytes(raw), name, decode, unknowns, long_list=_takes_long_lists(field.info))


def _decode_at_once(name: str, raw: Raw | bytes, field: Field, unknowns: Unknowns) -> Any:  # noqa: ANN401 - each field's
    try:
        return field.decoder.decode(raw)
    except msgspec.ValidationError as error:
        if UNKNOWN.match(str(error)):
            known = pruned(msgspec.json.decode(raw), field.info, name, unknowns)
            return _decode_at_once(name, msgspec.json.encode(known), field, unknowns)
        raise _mistyped(name, str(error), field) from error
    except RecursionError as error:
        raise BadRequest(f"{name} is nested too deeply.", param=name) from error
    except msgspec.DecodeError as error:
        raise BadRequest(f"{name} is not valid JSON text: {error}.", param=name) from error


LOCATED = re.compile(r"(?P<what>.*?)(?: - at (?:`key` in )?`\$?(?P<path>.*)`)?", re.DOTALL)
UNKNOWN = re.compile(r"Object contains unknown field `")


def _mistyped(name: str, complaint: str, field: Field) -> BadRequest:
    """A validation error of msgspec's, its place turned into a path from the body."""
    located = LOCATED.fullmatch(complaint)
    what, place = (located["what"], located["path"] or "") if located else (complaint, "")
    path = name + place
    if what.startswith("Invalid enum value"):
        what += f"; it must be one of {', '.join(_choices(field.info))}"
    hint = f" {name} must be {field.words}." if not place else ""
    return BadRequest(f"{path}: {what}.{hint}", param=path)


def _takes_long_lists(info: inspect.Type) -> bool:
    """Whether a list of any length is among what it may be."""
    match info:
        case inspect.Metadata(type=inner):
            return _takes_long_lists(inner)
        case inspect.UnionType(types=types):
            return any(_takes_long_lists(type_) for type_ in types)
        case _:
            return isinstance(info, inspect.ListType) and info.max_length is None


def _inner(info: inspect.Type) -> Iterator[inspect.Type]:
    """The type and those inside it."""
    yield info
    match info:
        case inspect.Metadata(type=inner) | inspect.ListType(item_type=inner):
            yield from _inner(inner)
        case inspect.UnionType(types=types):
            for type_ in types:
                yield from _inner(type_)
        case inspect.StructType(fields=fields):
            for field in fields:
                yield from _inner(field.type)


def _choices(info: inspect.Type) -> list[str]:
    return [str(value) for type_ in _inner(info) if isinstance(type_, inspect.LiteralType) for value in type_.values]


def _words(info: inspect.Type) -> str:
    """What a declared type asks for, in words."""
    match info:
        case inspect.Metadata(type=inner):
            return _words(inner)
        case inspect.UnionType(types=types):
            told = (_words(type_) for type_ in types if not isinstance(type_, inspect.NoneType))
            return " or ".join(dict.fromkeys(told))
        case inspect.IntType():
            return "an integer" + _range(info)
        case inspect.FloatType():
            return "a number" + _range(info)
        case inspect.StrType(min_length=least):
            return "a string that is not empty" if least else "a string"
        case inspect.BoolType():
            return "true or false"
        case inspect.ListType(item_type=item, min_length=least, max_length=most):
            size = f"up to {most} of: " if most else "at least one of: " if least else ""
            return f"a list of {size}{_words(item)}"
        case inspect.AnyType():
            return "valid JSON"
        case _:
            return "an object"


def _range(info: inspect.IntType | inspect.FloatType) -> str:
    low = f" from {info.ge}" if info.ge is not None else f" above {info.gt}" if info.gt is not None else ""
    return low + (f" to {info.le}" if info.le is not None else "")
