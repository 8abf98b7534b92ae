"""Keys, TLS, limits and logs of the real command with a tiny model, over real sockets."""

import json
import signal
import socket
import ssl
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
import trustme

from server.keys import key_line
from tests.conftest import model_folder
from tests.server.live import Live, serving

SECRET = "The class statement"
BODY = {"prompt": SECRET, "max_tokens": 5, "temperature": 0, "ignore_eos": True}
ANNA = {"authorization": "Bearer a-key"}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(scope="module")
def live(cache: Path) -> Iterator[Live]:
    (cache / "keys").write_text(key_line("anna", "a-key") + "\n")
    arguments = ["--cache-dir", str(cache), "--api-key", "another", "--api-key-file", str(cache / "keys")]
    arguments += ["--max-head", "2048", "--max-connections", "4", "--cors-origins", "https://chat.example.org"]
    arguments += ["--trusted-proxies", "127.0.0.1", "--log-format", "json", "--log-levels", "requests=debug"]
    with serving(str(model_folder("llama-int4")), *arguments) as server:
        yield server


def raw(live: Live, *pieces: bytes) -> bytes:
    """Send bytes and read until the server closes."""
    address = httpx.URL(live.url)
    with socket.create_connection((address.host, address.port or 80), timeout=30) as connection:
        for piece in pieces:
            connection.sendall(piece)
        return b"".join(iter(lambda: connection.recv(65536), b""))


@pytest.mark.parametrize("path", ["/v1/models", "/metrics", "/version", "/v1/nothing", "/page"])
@pytest.mark.parametrize("headers", [{}, {"authorization": "Bearer wrong"}, {"authorization": "Basic a-key"}])
def test_without_a_known_key_every_path_is_401_in_openai_s_form(live: Live, path: str, headers: dict[str, str]) -> None:
    answer = live.get(path, **headers)
    assert answer.status_code == 401
    assert answer.json()["error"]["code"] == "invalid_api_key"
    assert answer.headers["www-authenticate"] == "Bearer"
    assert "a-key" not in answer.text


def test_probes_need_no_key(live: Live) -> None:
    assert live.get("/health").status_code == 200
    assert live.get("/live").status_code == 200


def test_the_openai_client_gets_in_with_its_key_and_its_own_exception_without(live: Live) -> None:
    with openai.OpenAI(base_url=live.url + "/v1", api_key="another") as client:
        assert client.models.list().data
    with (
        openai.OpenAI(base_url=live.url + "/v1", api_key="guess", max_retries=0) as client,
        pytest.raises(openai.AuthenticationError),
    ):
        client.models.list()


def test_a_preflight_needs_no_key_and_only_named_origins_are_let_in(live: Live) -> None:
    def preflight(origin: str) -> httpx.Response:
        wanted = {"origin": origin, "access-control-request-method": "POST"}
        return httpx.options(live.url + "/v1/completions", headers=wanted)

    assert preflight("https://chat.example.org").headers["access-control-allow-origin"] == "https://chat.example.org"
    assert "access-control-allow-origin" not in preflight("https://elsewhere.example.org").headers


def test_a_page_s_script_may_read_what_the_sdk_goes_by(live: Live) -> None:
    reply = httpx.get(live.url + "/v1/models", headers={"origin": "https://chat.example.org"})
    told = {name.strip() for name in reply.headers["access-control-expose-headers"].split(",")}
    assert told == {"x-request-id", "retry-after", "x-should-retry"}


def test_a_preflight_into_a_private_network_is_granted_to_named_origins_alone(live: Live) -> None:
    def preflight(origin: str) -> httpx.Response:
        wanted = {"origin": origin, "access-control-request-method": "POST"}
        wanted |= {"access-control-request-headers": "authorization, content-type"}
        wanted |= {"access-control-request-private-network": "true"}
        return httpx.options(live.url + "/v1/chat/completions", headers=wanted)

    granted = preflight("https://chat.example.org")
    assert granted.status_code == 200
    assert granted.headers["access-control-allow-private-network"] == "true"
    assert granted.headers["access-control-allow-origin"] == "https://chat.example.org"
    refused = preflight("https://elsewhere.example.org")
    assert refused.status_code == 400
    assert "access-control-allow-private-network" not in refused.headers


@pytest.mark.parametrize(
    "head",
    [
        b"GET /live HTTP/1.1\r\n" + b"".join(b"x-%d: 1234567890\r\n" % n for n in range(200)) + b"\r\n",
        b"GET /live HTTP/1.1\r\nx: " + b"y" * 4000,
        b"GET /" + b"y" * 4000,
    ],
    ids=["many headers", "one header without an end", "a line without an end"],
)
def test_a_head_over_the_limit_is_431_and_the_connection_closes(live: Live, head: bytes) -> None:
    answer = raw(live, head)
    assert answer.startswith(b"HTTP/1.1 431 ")
    assert b'"headers_too_large"' in answer


def test_what_is_no_http_is_400_in_openai_s_form(live: Live) -> None:
    answer = raw(live, b"good morning\r\n\r\n")
    assert answer.startswith(b"HTTP/1.1 400 ")
    assert b'"invalid_request_error"' in answer


def test_a_head_that_comes_in_pieces_is_no_larger_for_it(live: Live) -> None:
    answer = raw(live, b"GET /live HTTP/1.1\r\nhost: x\r\n", b"connection: close\r\n", b"\r\n")
    assert answer.startswith(b"HTTP/1.1 200 ")


def test_one_connection_too_many_is_told_so_and_the_next_is_served_again(live: Live) -> None:
    clients = [httpx.Client(base_url=live.url) for _ in range(4)]
    try:
        assert [client.get("/live").status_code for client in clients] == [200] * 4
        refused = live.get("/live")
        assert refused.status_code == 503
        assert refused.json()["error"]["type"] == "service_unavailable"
    finally:
        for client in clients:
            client.close()
    while live.get("/live").status_code == 503:  # until the server has noticed
        pass


def test_a_finished_request_is_one_line_with_its_figures_and_never_its_text(cache: Path) -> None:
    arguments = ["--cache-dir", str(cache), "--api-key-file", str(cache / "keys"), "--log-format", "json"]
    (cache / "keys").write_text(key_line("anna", "a-key") + "\n")
    with serving(str(model_folder("llama-int4")), *arguments, "--trusted-proxies", "127.0.0.1") as server:
        headers = {**ANNA, "x-request-id": "mine", "x-forwarded-for": "192.0.2.7"}
        answer = server.post("/v1/completions", BODY, **headers)
        server.post("/v1/completions", {**BODY, "nonsense": 1}, **ANNA)
        server.post("/v1/completions", {**BODY, "nonsense": 1, "request_id": "by-body"}, **headers)
        server.get("/v1/models", **ANNA)
        assert server.get("/%0A%1B[31m{}", **ANNA).status_code == 404
        _, log = server.end(signal.SIGTERM)
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    requests = [line for line in lines if line["event"] == "request"]
    assert [line["status"] for line in requests] == [200, 400, 400, 404]
    assert [line["request_id"] for line in requests][:3:2] == ["mine", "by-body"]
    assert requests[1]["request_id"] not in ("mine", "by-body")
    assert requests[3]["path"] == "/\\n\\x1b[31m{}"
    line = requests[0]
    usage = answer.json()["usage"]
    assert (line["prompt_tokens"], line["new_tokens"]) == (usage["prompt_tokens"], 5)
    assert (line["key"], line["client"], line["finish"], line["cached_tokens"]) == ("anna", "192.0.2.7", "length", 0)
    assert 0 <= line["queue_s"] < line["ttft_s"] < line["seconds"]
    assert line["tokens_per_s"] > 0
    assert line["level"] == "info"
    assert SECRET not in log
    assert "a-key" not in log


def test_over_tls_the_certificate_is_the_given_one(cache: Path) -> None:
    authority = trustme.CA()
    authority.issue_cert("127.0.0.1").private_key_and_cert_chain_pem.write_to_path(str(cache / "tls.pem"))
    arguments = ["--cache-dir", str(cache), "--ssl-certfile", str(cache / "tls.pem"), "--host", "0.0.0.0"]
    with serving(str(model_folder("llama-int4")), *arguments) as server:
        assert server.url.startswith("https://")
        authority.cert_pem.write_to_path(str(cache / "ca.pem"))
        trusting = ssl.create_default_context(cafile=str(cache / "ca.pem"))
        url = server.url.replace("0.0.0.0", "127.0.0.1")
        assert httpx.get(url + "/v1/models", verify=trusting).status_code == 200
        with pytest.raises(httpx.ConnectError):
            httpx.get(url + "/v1/models")
        _, log = server.end(signal.SIGTERM)
    assert "may use this server" in log


def test_a_unix_socket_is_served_and_removed_at_the_end(cache: Path) -> None:
    path = cache / "paceline.sock"
    with serving(str(model_folder("llama-int4")), "--cache-dir", str(cache), "--uds", str(path)) as server:
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(path)), base_url="http://here") as client:
            assert client.get("/v1/models").status_code == 200
        server.end(signal.SIGTERM)
    assert not path.exists()
