import json
import signal
import socket
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from server.addresses import addresses, is_loopback
from server.config import ConfigError, Options
from server.listening import listening
from tests.conftest import model_folder
from tests.server.live import serving


def has_ipv6() -> bool:
    try:
        with socket.socket(socket.AF_INET6) as probe:
            probe.bind(("::1", 0))
    except OSError:
        return False
    return True


needs_ipv6 = pytest.mark.skipif(not has_ipv6(), reason="this machine has no IPv6")


def meant(host: str) -> list[str]:
    return [address[0] for _, address in addresses(host)]


@pytest.mark.parametrize("host", ["::", "[::]", "0:0:0:0:0:0:0:0", "::0", ""])
def test_every_address_of_ipv6_means_those_of_ipv4_too(host: str) -> None:
    assert meant(host) == ["::", "0.0.0.0"]


@pytest.mark.parametrize(
    ("host", "means"), [("::1", "::1"), ("[::1]", "::1"), ("127.0.0.1", "127.0.0.1"), ("0.0.0.0", "0.0.0.0")]
)
def test_another_address_means_itself(host: str, means: str) -> None:
    assert meant(host) == [means]


@pytest.mark.parametrize(
    ("host", "loopback"),
    [("::1", True), ("[::1]", True), ("127.0.0.2", True), ("localhost", True), ("::", False), ("0.0.0.0", False)],
)
def test_strangers_reach_what_is_no_loopback(host: str, loopback: bool) -> None:
    assert is_loopback(host) == loopback


@needs_ipv6
def test_every_address_of_either_kind_is_bound_to_one_port_and_a_client_keeps_its_address() -> None:
    with listening(Options(host="::", port=0)) as taken:
        six, four = taken.open()
        for server, client in ((six, "::1"), (four, "127.0.0.1")):
            with socket.create_connection((client, taken.port)) as one:
                accepted, where = server.accept()
                accepted.close()
                assert where[:2] == one.getsockname()[:2]


@needs_ipv6
@pytest.mark.parametrize(("family", "address"), [(socket.AF_INET, "127.0.0.1"), (socket.AF_INET6, "::1")])
def test_a_port_in_use_by_either_kind_is_refused_and_the_other_let_go(family: int, address: str) -> None:
    with closing(socket.create_server((address, 0), family=family)) as server:
        port = server.getsockname()[1]
        with pytest.raises(ConfigError, match=f"port {port} of :: is taken"), listening(Options(host="::", port=port)):
            pass
    with listening(Options(host="::", port=port)):
        pass


@needs_ipv6
def test_a_server_of_every_address_answers_both_kinds_and_knows_an_ipv4_proxy_by_its_address(tmp_path: Path) -> None:
    cache = ("--cache-dir", str(tmp_path))
    arguments = ("--host", "::", "--trusted-proxies", "127.0.0.1", "--api-key", "k", "--log-format", "json")
    with serving(str(model_folder("llama-int4")), *cache, *arguments) as live:
        assert live.url.startswith("http://[::]:")
        port = live.url.rsplit(":", 1)[1]
        headers = {"authorization": "Bearer k", "x-forwarded-for": "203.0.113.9"}
        for host in ("127.0.0.1", "[::1]"):
            url = f"http://{host}:{port}/v1/completions"
            body = {"prompt": "a", "max_tokens": 1}
            assert httpx.post(url, json=body, headers=headers, timeout=60).status_code == 200
        status, log = live.end(signal.SIGTERM)
    assert status == 0
    assert [json.loads(line)["client"] for line in log.splitlines() if '"client"' in line] == ["203.0.113.9", "::1"]
