"""Clients that leave in the middle, and errors of the server's own, over real sockets."""

import asyncio
import json
import logging
import signal
import socket
import threading
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import cast

import httpx
import pytest
import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import Response, StreamingResponse
from starlette.routing import Route

from server.app import make_app
from server.endpoints import Endpoints
from server.protocol import Limits, limited
from server.service import Service
from tests.conftest import model_folder
from tests.server.live import Live, serving

HEAD = b"POST %s HTTP/1.1\r\nhost: a\r\nx-request-id: gone-%d\r\ncontent-type: application/json\r\n"
LEFT = [b"content-length: 50\r\n\r\n", b"content-length: 50\r\n\r\n{", b"transfer-encoding: chunked\r\n\r\n5\r\n{"]
LEFT += [b"content-length: 50\r\ncontent-encoding: gzip\r\n\r\n\x1f", b"content-length: 1048576\r\n\r\n" + b" " * 2**18]
PATHS = [b"/v1/completions", b"/v1/chat/completions", b"/tokenize", b"/detokenize", b"/nowhere"]


def test_a_client_that_leaves_while_it_sends_is_no_error_of_the_server(tmp_path: Path) -> None:
    arguments = ["--cache-dir", str(tmp_path), "--log-format", "json", "--log-levels", "uvicorn=info"]
    with serving(str(model_folder("llama-int4")), *arguments) as server:
        address = httpx.URL(server.url)
        for number, left in enumerate(left for left in LEFT for _ in PATHS):
            with socket.create_connection((address.host, address.port or 80)) as connection:
                connection.sendall(HEAD % (PATHS[number % len(PATHS)], number) + left)
        while server.get("/health").json()["in_flight"]:
            pass
        _, log = server.end(signal.SIGTERM)
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    gone = {line["request_id"]: line["status"] for line in lines if line.get("request_id", "").startswith("gone-")}
    assert {id_: status for id_, status in gone.items() if status not in (404, 499)} == {}
    assert 499 in gone.values()
    assert [line for line in lines if line["level"] in ("warning", "error")] == []
    assert "Traceback" not in log


async def broken(_: Request) -> Response:
    raise LookupError("deep inside")


async def torn(_: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        yield b"a piece"
        raise LookupError("deep inside")

    return StreamingResponse(pieces())


async def endless(_: Request) -> Response:
    async def pieces() -> AsyncIterator[bytes]:
        try:
            while True:
                await asyncio.sleep(0)
                yield b"." * 2**16
        finally:
            OVER.set()

    return StreamingResponse(pieces())


OVER = threading.Event()


@asynccontextmanager
async def lifespan(_: Starlette) -> AsyncIterator[None]:
    yield


@pytest.fixture(scope="module")
def faulty() -> Iterator[str]:
    """The application with some routes more; nobody asks for its service."""
    routes = [Route("/broken", broken), Route("/torn", torn), Route("/endless", endless)]
    app = make_app(Endpoints(cast("Service", None)), lifespan, routes=routes)
    protocol = limited(Limits(65536, 100, seconds=15.0, unread=0.3))
    server = uvicorn.Server(uvicorn.Config(app, port=0, http=protocol, ws="none", log_config=None, access_log=False))
    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = threading.Thread(target=lambda: asyncio.run(server.serve([listening])))
        thread.start()
        yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        server.should_exit = True
        thread.join()


def test_a_client_that_takes_nothing_of_its_answer_is_cut_off(faulty: str) -> None:
    address = httpx.URL(faulty)
    with socket.create_connection((address.host, address.port or 80), timeout=60) as connection:
        connection.sendall(b"GET /endless HTTP/1.1\r\nhost: a\r\n\r\n")
        assert OVER.wait(60)  # nothing is read
        (last,) = deque(iter(lambda: connection.recv(2**20), b""), maxlen=1)
    assert not last.endswith(b"0\r\n\r\n")


def test_an_error_of_the_server_s_own_is_logged_once_and_says_that_the_connection_closes(
    faulty: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), httpx.Client(base_url=faulty) as client:
        answer = client.get("/broken", headers={"x-request-id": "mine"})
        assert (answer.status_code, answer.headers["connection"]) == (500, "close")
        assert answer.json()["error"]["code"] == "internal_error"
        assert answer.headers["x-request-id"] == "mine"
        assert "deep inside" not in answer.text
        assert client.get("/live").status_code == 200  # by another connection
    assert len([record for record in caplog.records if record.exc_info]) == 1


def test_an_answer_that_fails_in_the_middle_is_cut_off_and_logged_once(
    faulty: str, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.INFO), pytest.raises(httpx.RemoteProtocolError):
        httpx.get(faulty + "/torn")
    assert len([record for record in caplog.records if record.exc_info]) == 1


def test_an_answered_error_of_the_client_s_keeps_the_connection(tiny: Live) -> None:
    with httpx.Client(base_url=tiny.url) as client:
        assert "connection" not in client.post("/v1/completions", json={}).headers
