"""What stands in a request's head, made fit for this server: bytes to bytes. Pure; knows no connection."""

import re
from collections.abc import Iterable

_TARGET = re.compile(rb"(?:[a-z][a-z0-9+.-]*://[^/?#]*)?([^?#]*)(.*)", re.IGNORECASE | re.DOTALL)
_SLASHES = re.compile(rb"/{2,}")


def tidy(target: bytes) -> bytes:
    """A request's target as the routes know it: its path has single slashes, and none at its end.

    A target in absolute form loses scheme and host; slashes that are written as %2F belong to a name and stay.
    """
    found = _TARGET.fullmatch(target)
    assert found is not None, target  # it matches anything
    path, rest = found.groups()
    return (_SLASHES.sub(b"/", path).rstrip(b"/") or b"/") + rest


def without_upgrade(method: bytes, target: bytes, version: str, headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The head of a request again, but for its offer to speak another protocol from here on.

    RFC 9110, 7.8: a server may ignore the offer, and the request is then an ordinary one.
    """
    lines = [b"%s %s HTTP/%s" % (method, target, version.encode())]
    for name, value in headers:
        if name == b"upgrade":
            continue
        kept = _without_token(value, b"upgrade") if name == b"connection" else value
        lines.append(name + b": " + kept)
    return b"\r\n".join([*lines, b"", b""])


def _without_token(value: bytes, token: bytes) -> bytes:
    return b", ".join(part.strip() for part in value.split(b",") if part.strip().lower() != token)
