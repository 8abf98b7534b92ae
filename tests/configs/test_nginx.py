"""A paceline behind Debian's nginx, as an operator would set it up, on one machine."""

import ssl
from collections.abc import Iterator

import httpx
import openai
import pytest
import trustme

from server.keys import key_line
from tests.configs.programs import answered, copy, free_port, program, running
from tests.conftest import model_folder
from tests.server.live import serving

BODY = {"prompt": "The class", "max_tokens": 30, "temperature": 0}
KEY = {"authorization": "Bearer a-key"}
TEMPORARY = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
Front = tuple[str, ssl.SSLContext]


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    """nginx's address, and whom to trust."""
    nginx = program("nginx", "nginx-light")
    folder, port = tmp_path_factory.mktemp("nginx"), free_port()
    authority = trustme.CA()
    certificate = authority.issue_cert("localhost")
    certificate.cert_chain_pems[0].write_to_path(str(folder / "tls.pem"))
    certificate.private_key_pem.write_to_path(str(folder / "tls.key"))
    (folder / "keys").write_text(key_line("anna", "a-key") + "\n")
    here = {"/run/paceline": str(folder), "/etc/paceline": str(folder)}
    toml = copy("behind-nginx.toml", folder, here)
    paths = " ".join(f"{name}_temp_path {folder}/{name};" for name in TEMPORARY)
    changes = {
        **here,
        "listen 443 ssl": f"listen 127.0.0.1:{port} ssl",
        "http {": f"http {{ {paths}",
        "worker_processes auto;": f"user root; daemon off; pid {folder}/pid; error_log {folder}/log;",
    }
    conf = copy("nginx.conf", folder, changes)
    trusting = ssl.create_default_context()
    authority.configure_trust(trusting)
    url = f"https://localhost:{port}"
    with (
        serving(str(model_folder("llama-int4")), "--config", str(toml), "--cache-dir", str(folder)),
        running(nginx, "-c", str(conf)) as process,
    ):
        assert answered(url + "/health", process, trusting).status_code == 200
        yield url, trusting


def test_the_openai_client_streams_through_it(front: Front) -> None:
    url, trusting = front
    with (
        openai.DefaultHttpxClient(verify=trusting) as http,
        openai.OpenAI(base_url=url + "/v1", api_key="a-key", http_client=http) as client,
    ):
        stream = client.completions.create(
            model="", prompt="The class", max_tokens=30, temperature=0, stream=True, extra_body={"ignore_eos": True}
        )
        pieces = [chunk.choices[0] for chunk in stream]
        assert "".join(piece.text for piece in pieces)
        assert pieces[-1].finish_reason == "length"


def test_the_first_piece_is_there_while_the_rest_is_being_computed(front: Front) -> None:
    url, trusting = front
    endless = {**BODY, "max_tokens": 1900, "ignore_eos": True, "stream": True, "n": 8}
    with (
        httpx.Client(verify=trusting, timeout=60) as client,
        client.stream("POST", url + "/v1/completions", json=endless, headers=KEY) as reply,
    ):
        lines = reply.iter_lines()
        assert next(lines).startswith("data: ")
        assert client.get(url + "/health").json()["in_flight"] == 8


def test_a_wrong_key_is_refused_and_this_machine_may_see_the_metrics(front: Front) -> None:
    url, trusting = front
    refused = httpx.get(url + "/v1/models", verify=trusting, headers={"authorization": "Bearer b-key"})
    assert refused.status_code == 401
    assert httpx.get(url + "/metrics", verify=trusting).status_code == 200
