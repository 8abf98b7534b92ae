"""What odd clients send, byte by byte over real sockets, to the real command with a tiny model."""

import json
import shutil
import socket
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest

from tests.conftest import model_folder
from tests.server.live import Live, serving

BODY = b'{"prompt": "The class statement", "max_tokens": 6, "temperature": 0, "ignore_eos": true}'
STREAM = BODY[:-1] + b', "stream": true}'
UPGRADE = b"connection: Upgrade, HTTP2-Settings\r\nupgrade: h2c\r\nhttp2-settings: AAEAAEAAAAIAAAAB\r\n"


def connected(live: Live) -> socket.socket:
    address = httpx.URL(live.url)
    return socket.create_connection((address.host, address.port or 80), timeout=60)


def raw(live: Live, *pieces: bytes) -> tuple[bytes, bytes]:
    """Send bytes and read until the server closes: the head of the answer, and its body as it came."""
    with connected(live) as connection:
        for piece in pieces:
            connection.sendall(piece)
        answer = b"".join(iter(lambda: connection.recv(65536), b""))
    head, _, body = answer.partition(b"\r\n\r\n")
    return head.lower(), body


def post(headers: bytes = b"", version: bytes = b"1.1", path: bytes = b"/v1/completions") -> bytes:
    return b"POST " + path + b" HTTP/" + version + b"\r\nhost: a\r\ncontent-type: application/json\r\n" + headers


def sized(body: bytes) -> bytes:
    return b"content-length: %d\r\n\r\n" % len(body) + body


def chunked(body: bytes) -> bytes:
    pieces = b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in (body[:9], body[9:]))
    return b"transfer-encoding: chunked\r\n\r\n" + pieces + b"0\r\n\r\n"


def text_of(body: bytes) -> str:
    return str(json.loads(body)["choices"][0]["text"])


@pytest.fixture(scope="module")
def text(tiny: Live) -> str:
    """What the model answers."""
    return str(tiny.post("/v1/completions", json.loads(BODY)).json()["choices"][0]["text"])


CLOSE = b"GET /live HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n"
"""A last request, behind another one on the same connection."""


@pytest.mark.parametrize("upgrade", [UPGRADE, UPGRADE.replace(b"h2c", b"websocket"), UPGRADE.title()])
@pytest.mark.parametrize("form", [sized, chunked])
@pytest.mark.parametrize("piece", [1, 97, 10**6], ids="{} bytes at a time".format)
def test_a_body_behind_an_offer_to_upgrade_is_served_and_so_is_the_next_request(
    tiny: Live, text: str, upgrade: bytes, form: Callable[[bytes], bytes], piece: int
) -> None:
    sent = post(upgrade) + form(BODY) + CLOSE
    head, answers = raw(tiny, *(sent[at : at + piece] for at in range(0, len(sent), piece)))
    assert head.startswith(b"http/1.1 200 ")
    answer, _, last = answers.partition(b"HTTP/1.1 200 OK")
    assert text_of(answer) == text
    assert last.endswith(b'{"status":"alive"}')


def test_an_offer_to_upgrade_without_a_body_is_served_too(tiny: Live) -> None:
    head, body = raw(tiny, b"GET /v1/models HTTP/1.1\r\nhost: a\r\n" + UPGRADE + b"\r\n" + CLOSE)
    assert head.startswith(b"http/1.1 200 ")
    assert b'"tiny"' in body


def test_java_s_client_is_answered_at_its_first_request(tiny: Live, text: str, tmp_path: Path) -> None:
    if (java := shutil.which("java")) is None or shutil.which("javac") is None:
        pytest.skip("there is no JDK")
    (tmp_path / "Ask.java").write_text(
        """
        import java.net.URI;
        import java.net.http.*;
        public class Ask {
            public static void main(String[] given) throws Exception {
                var request = HttpRequest.newBuilder(URI.create(given[0])).header("content-type", "application/json")
                    .POST(HttpRequest.BodyPublishers.ofString(given[1])).build();
                System.out.print(HttpClient.newHttpClient().send(request, HttpResponse.BodyHandlers.ofString()).body());
            }
        }
        """
    )
    command = [java, str(tmp_path / "Ask.java"), tiny.url + "/v1/completions", BODY.decode()]
    assert text_of(subprocess.run(command, capture_output=True, check=True).stdout) == text


def test_connect_is_refused(tiny: Live) -> None:
    head, _ = raw(tiny, b"CONNECT a:80 HTTP/1.1\r\nhost: a\r\n\r\n")
    assert head.startswith(b"http/1.1 405 ")
    assert b"allow: get, post" in head


def test_http_1_0_gets_no_chunks_and_the_body_ends_with_the_connection(tiny: Live, text: str) -> None:
    head, body = raw(tiny, post(b"connection: keep-alive\r\n", b"1.0") + sized(STREAM))
    assert head.startswith(b"http/1.1 200 ")
    assert b"transfer-encoding" not in head
    assert b"connection: close" in head
    events = body.decode().split("\n\n")
    assert events[-2:] == ["data: [DONE]", ""]
    assert "".join(text_of(event.removeprefix("data: ").encode()) for event in events[:-2]) == text
    plain, body = raw(tiny, post(version=b"1.0") + sized(BODY))
    assert b"content-length: %d" % len(body) in plain
    assert text_of(body) == text


@pytest.mark.parametrize("request_", [b"GET /", b"GET /page/page.js", b"HEAD /v1/steps", b"HEAD /", b"GET /metrics"])
def test_other_answers_to_http_1_0_are_whole_and_without_chunks(tiny: Live, request_: bytes) -> None:
    head, body = raw(tiny, request_ + b" HTTP/1.0\r\n\r\n")
    assert head.startswith(b"http/1.1 200 ")
    assert b"transfer-encoding" not in head
    assert bool(body) == request_.startswith(b"GET")


@pytest.mark.parametrize(
    ("path", "same"),
    [
        ("/v1/models/", "/v1/models"),
        ("//v1//models//", "/v1/models"),
        ("/v1/models/tiny/", "/v1/models/tiny"),
        ("///", "/"),
        ("/version/?a=/", "/version"),
        ("/openapi.json/", "/openapi.json"),
        ("//page//page.js", "/page/page.js"),
    ],
)
def test_needless_slashes_lead_to_the_same_place(tiny: Live, path: str, same: str) -> None:
    head, body = raw(tiny, f"GET {path} HTTP/1.1\r\nhost: a\r\nconnection: close\r\n\r\n".encode())
    assert head.startswith(b"http/1.1 200 ")
    assert body == tiny.get(same).content


def test_a_post_with_needless_slashes_is_no_redirection(tiny: Live, text: str) -> None:
    _, body = raw(tiny, post(b"connection: close\r\n", path=b"//v1/completions/") + sized(BODY))
    assert text_of(body) == text


@pytest.mark.parametrize(
    "target",
    [
        *("/v1/models/%2F", "/v1/models/%00", "/v1/models/a/../b", "/v1/requests/%2F/cancel", "/%FF%FE", "/..", "*"),
        *("/page/", "/page", "/page/%00", "/page/..%2F..%2Fapp.py", "/page/" + "a" * 300, "/page/page.js/"),
        "http://a/nothing",
    ],
)
@pytest.mark.parametrize("method", ["GET", "HEAD", "POST", "DELETE", "OPTIONS"])
def test_no_path_is_an_error_of_the_server_s_own(tiny: Live, target: str, method: str) -> None:
    request = f"{method} {target} HTTP/1.1\r\nhost: a\r\nconnection: close\r\ncontent-length: 0\r\n\r\n"
    head, _ = raw(tiny, request.encode())
    assert head.startswith((b"http/1.1 4", b"http/1.1 200 ")), head
    assert (b"200" in head[:12]) == (target == "/page/page.js/" and method in ("GET", "HEAD"))


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    cache = str(tmp_path_factory.mktemp("cache"))
    arguments = ("--max-connections", "4", "--receive-timeout", "0.5")
    with serving(str(model_folder("llama-int4")), "--cache-dir", cache, *arguments) as server:
        yield server


HALVES = {
    "nothing": b"",
    "an empty line": b"\r\n",
    "half a line": b"POST /v1/comp",
    "half a head": post(),
    "half a body": post() + sized(BODY)[:-5],
    "half a chunk": post() + chunked(BODY)[:50],
    "a body that is expected": post(b"expect: 100-continue\r\ncontent-length: 5\r\n\r\n"),
    "half a body of no endpoint": post(path=b"/nowhere") + sized(BODY)[:-5],
    "half a second request": CLOSE.replace(b"close", b"keep-alive") + post(),
    "an offer to upgrade and half a body": post(UPGRADE) + sized(BODY)[:-5],
}


@pytest.mark.parametrize("half", HALVES)
def test_four_that_do_not_go_on_lock_nobody_out_for_ever(strict: Live, half: str) -> None:
    others = [connected(strict) for _ in range(4)]
    try:
        for other in others:
            other.sendall(HALVES[half])
        ends = [b"".join(iter(lambda other=other: other.recv(65536), b"")) for other in others]  # type: ignore[misc]
    finally:
        for other in others:
            other.close()
    assert strict.get("/health").status_code in (200, 503)
    while strict.get("/health").status_code == 503:  # until the server has noticed
        pass
    if half == "nothing":
        assert ends == [b""] * 4
    elif half != "half a body of no endpoint":
        assert all(b"HTTP/1.1 408 " in end and b'"request_incomplete"' in end for end in ends)


def test_a_long_answer_and_a_connection_that_is_kept_are_no_silence(strict: Live) -> None:
    with httpx.Client(base_url=strict.url, timeout=60) as client:
        body = {**json.loads(BODY), "max_tokens": 1900}
        for _ in range(2):
            assert client.post("/v1/completions", json=body).json()["usage"]["completion_tokens"] == 1900
