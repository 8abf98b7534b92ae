"""Server-sent events whose data stays in one line for every client. Knows no field of what it sends.

JSON leaves U+2028, U+2029 and U+0085 as they are, and many clients (httpx's `iter_lines`, Python's `splitlines`) take
them for ends of lines and tear an event that holds one. Escaped, they are the same text.
"""

from server.stretches import Work, at_once

_LINE_ENDS = tuple((char.encode(), f"\\u{ord(char):04x}".encode()) for char in "\u0085\u2028\u2029")


def event(data: bytes, name: str = "") -> bytes:
    """An event of JSON data, which in a document can have such characters in strings only; with a name where given."""
    return at_once(long_event(data, name))


def long_event(data: bytes, name: str = "") -> Work[bytes]:
    """The same of data that may be long."""
    for char, escaped in _LINE_ENDS:
        if char in data:
            data = data.replace(char, escaped)
        yield
    head = f"event: {name}\n".encode() if name else b""
    return head + b"data: " + data + b"\n\n"
