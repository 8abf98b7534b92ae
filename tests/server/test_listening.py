"""Real sockets, each in the way of another."""

import os
import signal
import socket
import ssl
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import httpx
import pytest
import trustme

from server.config import ConfigError, Options
from server.listening import listening
from tests.conftest import model_folder
from tests.server.live import serving, told


@contextmanager
def owned(path: Path) -> Iterator[socket.socket]:
    """A Unix socket that somebody listens on."""
    with socket.socket(socket.AF_UNIX) as one:
        one.bind(str(path))
        one.listen(1)
        yield one


def dead(path: Path) -> Path:
    """A Unix socket whose owner was killed."""
    with owned(path):
        pass
    return path


def refused(**options: object) -> str:
    """Why the options cannot be listened on."""
    with pytest.raises(ConfigError) as caught, listening(Options(**options)):  # type: ignore[arg-type]
        pass
    return str(caught.value)


def test_a_file_at_the_socket_s_path_is_left_alone(tmp_path: Path) -> None:
    file, folder, link = tmp_path / "notes", tmp_path / "folder", tmp_path / "link"
    file.write_text("mine")
    folder.mkdir()
    link.symlink_to(file)
    for path in (file, folder, link):
        assert f"{path} is there already and is no socket" in refused(uds=str(path))
    assert file.read_text() == "mine"
    assert link.is_symlink()
    assert folder.is_dir()


def test_a_living_server_s_socket_is_not_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with owned(path) as server:
        assert "a server that runs" in refused(uds=str(path))
        held = []
        while "a server that runs" in refused(uds=str(path)):  # until its backlog is full
            held.append(socket.socket(socket.AF_UNIX))
            held[-1].setblocking(False)
            if held[-1].connect_ex(str(path)):
                break
        assert "a server that runs" in refused(uds=str(path))
        for one in held:
            one.close()
        server.accept()[0].close()  # it is there still


def test_a_socket_of_another_kind_is_not_taken_away(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as server:
        server.bind(str(path))
        assert "a server that runs" in refused(uds=str(path))
        assert path.is_socket()


def test_a_dead_server_s_socket_is_replaced(tmp_path: Path) -> None:
    path = dead(tmp_path / "socket")
    with listening(Options(uds=str(path))) as taken, socket.socket(socket.AF_UNIX) as client:
        (one,) = taken.open()
        client.connect(str(path))
        one.accept()[0].close()
    assert not path.exists()


def test_a_socket_that_somebody_put_in_the_place_of_ours_stays(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    with listening(Options(uds=str(path))):
        path.unlink()
        dead(path)
    assert path.is_socket()


def test_a_start_that_fails_removes_its_socket(tmp_path: Path) -> None:
    path = tmp_path / "socket"
    seen = []

    def start() -> None:
        with listening(Options(uds=str(path))):
            seen.append(path.is_socket())
            raise ConfigError("something else")

    with pytest.raises(ConfigError, match="something else"):
        start()
    assert seen == [True]
    assert not path.exists()


def test_places_where_no_socket_can_be_are_named(tmp_path: Path) -> None:
    assert f"no folder {tmp_path / 'no'}" in refused(uds=str(tmp_path / "no" / "socket"))
    assert "choose a shorter path" in refused(uds=str(tmp_path / ("long" * 40)))
    (tmp_path / "file").touch()
    assert "choose another path" in refused(uds=str(tmp_path / "file" / "socket"))
    assert "choose another path" in refused(uds="/proc/socket")


@pytest.mark.parametrize("host", ["127.0.0.1", "0.0.0.0", "localhost", ""])
def test_a_port_in_use_is_refused(host: str) -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = server.getsockname()[1]
        assert f"port {port} of {host or 'all addresses'} is taken" in refused(host=host, port=port)


def test_a_port_is_held_before_it_is_open_and_its_clients_are_refused_until_then() -> None:
    with listening(Options(port=0)) as first:
        port = first.port
        assert port
        assert "is taken" in refused(port=port)
        with socket.socket() as client:
            assert client.connect_ex(("127.0.0.1", port)) != 0
        first.open()
        socket.create_connection(("127.0.0.1", port)).close()
        assert "is taken" in refused(port=port)


def test_a_port_can_be_taken_again_at_once() -> None:
    with listening(Options(port=0)) as first:
        (server,) = first.open()
        port = first.port
        with socket.create_connection(("127.0.0.1", port)) as client:
            server.accept()[0].close()  # who closes first has the kernel remember the connection
            assert client.recv(1) == b""
    with listening(Options(port=port)) as second:
        second.open()


def test_all_addresses_of_a_name_have_one_port() -> None:
    with listening(Options(host="localhost", port=0)) as taken:
        assert {one.getsockname()[1] for one in taken.open()} == {taken.port}


@pytest.mark.parametrize("host", ["no.such.name.invalid", "x" * 300, "1.2.3.4.5", "\0"])
def test_a_host_that_is_no_address_is_refused(host: str) -> None:
    assert f"host = {host!r} is no address" in refused(host=host)


def test_a_host_of_another_machine_is_refused() -> None:
    assert "no address of this machine" in refused(host="192.0.2.1")


def failed(cache: Path, *arguments: str) -> str:
    """What a start says that fails before anything is imported."""
    status, said = told("serve", str(model_folder("llama-int4")), "--cache-dir", str(cache), *arguments)
    assert status == 1, said
    assert said.count("paceline:") == 1
    assert "Traceback" not in said
    assert "terminate called" not in said
    assert not cache.exists()
    return said


def test_what_stands_in_the_way_is_told_before_the_import(tmp_path: Path) -> None:
    cache = tmp_path / "cache"
    with closing(socket.create_server(("127.0.0.1", 0))) as server:
        port = str(server.getsockname()[1])
        assert f"port {port} of 127.0.0.1 is taken" in failed(cache, "--port", port)
    with owned(tmp_path / "socket"):
        assert "a server that runs" in failed(cache, "--uds", str(tmp_path / "socket"))
    (tmp_path / "file").touch()
    assert "is no socket" in failed(cache, "--uds", str(tmp_path / "file"))
    assert "no folder" in failed(cache, "--uds", str(tmp_path / "no" / "socket"))
    assert "ssl_certfile" in failed(cache, "--port", "0", "--ssl-certfile", str(tmp_path / "file"))


def test_a_certificate_is_looked_at_before_the_import_and_asks_for_no_password(tmp_path: Path) -> None:
    one, other = (trustme.CA().issue_cert("127.0.0.1") for _ in range(2))
    certificate, key = tmp_path / "certificate", tmp_path / "key"
    one.cert_chain_pems[0].write_to_path(str(certificate))
    other.private_key_pem.write_to_path(str(key))
    arguments = ("--port", "0", "--ssl-certfile", str(certificate), "--ssl-keyfile", str(key))
    assert f"cannot be used with ssl_keyfile {key}" in failed(tmp_path / "cache", *arguments)
    lines = key.read_text().splitlines()
    encrypted = [lines[0], "Proc-Type: 4,ENCRYPTED", "DEK-Info: AES-128-CBC," + "0" * 32, "", *lines[1:]]
    key.write_text("\n".join(encrypted) + "\n")
    with pytest.raises(ssl.SSLError):
        ssl.create_default_context().load_cert_chain(certificate, key, password="")
    assert f"cannot be used with ssl_keyfile {key}" in failed(tmp_path / "cache", *arguments)


def test_a_second_server_of_a_socket_is_refused_and_the_first_goes_on(tmp_path: Path) -> None:
    arguments = (str(model_folder("llama-int4")), "--cache-dir", str(tmp_path), "--uds", str(tmp_path / "socket"))
    with serving(*arguments) as first:
        status, said = told("serve", *arguments)
        assert (status, "a server that runs" in said) == (1, True)
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(tmp_path / "socket"))) as client:
            assert client.get("http://here/live").status_code == 200
        os.kill(first.process.pid, signal.SIGKILL)
        first.process.wait()
        assert (tmp_path / "socket").is_socket()
        with serving(*arguments), httpx.Client(transport=httpx.HTTPTransport(uds=str(tmp_path / "socket"))) as client:
            assert client.get("http://here/live").status_code == 200
    assert not (tmp_path / "socket").exists()
