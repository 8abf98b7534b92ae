import gzip
import json
import zlib
from collections.abc import Callable
from contextlib import suppress

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.errors import BadRequest
from server.http_errors import TooLarge
from server.incoming import unpack
from tests.server.live import Live

BODY = json.dumps({"prompt": "The class statement", "max_tokens": 4, "temperature": 0}).encode()
JSON = {"content-type": "application/json"}


def bare(body: bytes) -> bytes:
    """Deflate without the frame of zlib."""
    packer = zlib.compressobj(wbits=-zlib.MAX_WBITS)
    return packer.compress(body) + packer.flush()


PACKED: dict[str, tuple[str, Callable[[bytes], bytes]]] = {
    "gzip": ("gzip", gzip.compress),
    "its old name": ("x-gzip", gzip.compress),
    "in capitals": ("GZip", gzip.compress),
    "beside identity": ("identity, gzip", gzip.compress),
    "deflate": ("deflate", zlib.compress),
    "deflate without a frame": ("deflate", bare),
    "nothing": ("identity", bytes),
    "an empty header": ("", bytes),
}


@given(st.binary(max_size=300), st.sampled_from([gzip.compress, zlib.compress, bare]), st.integers(-1, 1))
def test_what_was_packed_comes_out_up_to_the_limit_and_no_further(
    body: bytes, pack: Callable[[bytes], bytes], room: int
) -> None:
    coding = "gzip" if pack is gzip.compress else "deflate"
    limit = max(len(body) + room, 0)
    if limit < len(body):
        with pytest.raises(TooLarge):
            unpack(pack(body), coding, limit)
    else:
        assert unpack(pack(body), coding, limit) == body


@given(st.binary(min_size=1, max_size=300), st.sampled_from(["gzip", "deflate"]), st.data())
def test_what_is_cut_short_or_goes_on_is_refused(body: bytes, coding: str, data: st.DataObject) -> None:
    packed = gzip.compress(body) if coding == "gzip" else zlib.compress(body)
    cut = data.draw(st.integers(1, len(packed) - 1))
    for torn in (packed[:cut], packed + b"more"):
        with pytest.raises(BadRequest):
            unpack(torn, coding, 1000)


@given(st.binary(min_size=1, max_size=100), st.sampled_from(["gzip", "deflate"]))
def test_whatever_is_sent_is_unpacked_or_refused(body: bytes, coding: str) -> None:
    with suppress(BadRequest, TooLarge):
        assert len(unpack(body, coding, 1000)) <= 1000


@pytest.mark.parametrize("name", PACKED)
@pytest.mark.parametrize("chunked", [False, True])
def test_a_packed_body_is_read(tiny: Live, name: str, chunked: bool) -> None:
    coding, pack = PACKED[name]
    packed = pack(BODY)
    content = iter([packed[:9], packed[9:]]) if chunked else packed
    headers = {**JSON, "content-encoding": coding}
    answer = httpx.post(tiny.url + "/v1/completions", content=content, headers=headers, timeout=60)
    assert answer.status_code == 200, answer.text
    assert answer.json()["usage"]["completion_tokens"] == 4


@pytest.mark.parametrize("coding", ["br", "zstd", "compress", "gzip, br", "gzip, gzip", "nonsense"])
def test_another_coding_is_415_and_told_which_are_read(tiny: Live, coding: str) -> None:
    headers = {**JSON, "content-encoding": coding}
    answer = httpx.post(tiny.url + "/v1/chat/completions", content=gzip.compress(BODY), headers=headers)
    assert answer.status_code == 415
    assert answer.json()["error"]["code"] == "unsupported_content_encoding"
    assert "gzip" in answer.headers["accept-encoding"]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"])
@pytest.mark.parametrize("coding", ["gzip", "deflate"])
def test_a_bomb_is_413_and_what_is_not_packed_is_400(tiny: Live, path: str, coding: str) -> None:
    pack = gzip.compress if coding == "gzip" else zlib.compress
    headers = {**JSON, "content-encoding": coding}
    bomb = httpx.post(tiny.url + path, content=pack(b" " * 2**25), headers=headers, timeout=60)
    assert (bomb.status_code, bomb.json()["error"]["code"]) == (413, "body_too_large")
    plain = httpx.post(tiny.url + path, content=BODY, headers=headers)
    assert (plain.status_code, plain.json()["error"]["type"]) == (400, "invalid_request_error")
    assert tiny.get("/health").status_code == 200
