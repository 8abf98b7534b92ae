"""A request's body: declared as JSON, within the limit, and unpacked where it came packed. Knows no field of it."""

import re
import zlib

from anyio import to_thread
from starlette.requests import Request

from server.errors import BadRequest
from server.http_errors import TooLarge, UnsupportedCoding, UnsupportedMedia

JSON_TYPE = re.compile(r"\s*application/([\w.-]+\+)?json\s*(;.*)?", re.IGNORECASE)
WINDOWS = {"gzip": zlib.MAX_WBITS | 16, "x-gzip": zlib.MAX_WBITS | 16, "deflate": zlib.MAX_WBITS}
"""What zlib is told to read each coding."""


async def body_of(request: Request, limit: int) -> bytes:
    """The body, of up to `limit` bytes both as it came and unpacked.

    Raises TooLarge, UnsupportedMedia, UnsupportedCoding, BadRequest where it cannot be unpacked, and starlette's
    ClientDisconnect where its client leaves.
    """
    content_type = request.headers.get("content-type", "application/json")
    if not JSON_TYPE.fullmatch(content_type):
        raise UnsupportedMedia(content_type)
    coding = _coding(request.headers.getlist("content-encoding"))
    if int(request.headers.get("content-length", "0")) > limit:
        raise TooLarge(limit)
    body = bytearray()
    async for chunk in request.stream():
        body += chunk
        if len(body) > limit:
            raise TooLarge(limit)
    if coding and body:
        return await to_thread.run_sync(unpack, body, coding, limit)
    return bytes(body)


def _coding(values: list[str]) -> str:
    """The one coding that the headers name; empty where there is none."""
    named = [name for value in values for part in value.split(",") if (name := part.strip().lower()) != "identity"]
    named = [name for name in named if name]
    if len(named) > 1 or not WINDOWS.keys() >= set(named):
        raise UnsupportedCoding(", ".join(named), list(WINDOWS))
    return named[0] if named else ""


def unpack(body: bytes | bytearray, coding: str, limit: int) -> bytes:
    """What was packed; no more than a byte over the limit is ever made of it."""
    unpacker = zlib.decompressobj(WINDOWS[coding])
    try:
        try:
            unpacked = unpacker.decompress(body, limit + 1)
        except zlib.error:
            if coding != "deflate":
                raise
            unpacker = zlib.decompressobj(-zlib.MAX_WBITS)  # some clients leave out the frame that deflate has in HTTP
            unpacked = unpacker.decompress(body, limit + 1)
    except zlib.error as error:
        raise BadRequest(f"The body is not {coding}, as its content-encoding says: {error}.") from error
    if len(unpacked) > limit:
        raise TooLarge(limit)
    if not unpacker.eof or unpacker.unused_data:
        what = "goes on after its end" if unpacker.eof else "is cut short"
        raise BadRequest(f"The body's {coding} {what}; send it whole, in one piece of {coding}.")
    return unpacked
