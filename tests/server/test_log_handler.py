import json
import logging
import os
import signal
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import TextIO

import httpx
import pytest

from server.log_handler import UnblockingHandler
from tests.conftest import model_folder
from tests.server.live import COMMAND, serving

LINES = 3000  # of a hundred characters: several times what a pipe holds


@contextmanager
def pipe() -> Iterator[tuple[TextIO, UnblockingHandler]]:
    """What is read from a pipe, and a handler that writes to it."""
    source, target = os.pipe()
    with os.fdopen(source) as reading, os.fdopen(target, "w") as writing:
        yield reading, UnblockingHandler(writing)


def say(handler: UnblockingHandler, message: str) -> None:
    """Log a message; fails where that waits for a reader."""
    record = logging.makeLogRecord({"msg": message})
    thread = threading.Thread(target=handler.handle, args=[record], daemon=True)
    thread.start()
    thread.join(30)
    assert not thread.is_alive(), "the handler waits for somebody to read"


def heard(reading: TextIO, handler: UnblockingHandler) -> list[str]:
    """The lines until one that says that all were told."""
    os.set_blocking(reading.fileno(), False)
    text = reading.read()  # makes room
    os.set_blocking(reading.fileno(), True)
    say(handler, "that is all")
    while not text.endswith("that is all\n"):
        text += reading.readline()
    return text.splitlines()


def test_lines_that_nobody_reads_are_dropped_and_counted() -> None:
    with pipe() as (reading, handler):
        for i in range(LINES):
            say(handler, f"{i:0100}")
        *told, word, last = heard(reading, handler)
        assert 100 < len(told) < LINES
        assert told == [f"{i:0100}" for i in range(len(told))]
        assert word == "log lines were dropped, since nobody read them"
        assert last == "that is all"


def test_a_line_that_was_torn_ends_before_the_next() -> None:
    long = "x" * 10_007
    with pipe() as (reading, handler):
        for _ in range(100):
            say(handler, long)
        *told, torn, _, last = heard(reading, handler)
        assert told
        assert set(told) == {long}
        assert len(torn) < len(long)
        assert set(torn) == {"x"}
        assert last == "that is all"


def test_a_reader_that_left_takes_nobody_along() -> None:
    source, target = os.pipe()
    with os.fdopen(target, "w") as writing:
        handler = UnblockingHandler(writing)
        os.close(source)
        say(handler, "is anybody there?")


def test_a_server_whose_log_nobody_reads_answers(tmp_path: Path) -> None:
    arguments = (str(model_folder("llama-int4")), "--cache-dir", str(tmp_path), "--log-format", "json")
    with serving(*arguments, deaf=True) as server, httpx.Client() as client:
        for _ in range(LINES):
            assert client.get(f"{server.url}/nothing").status_code == 404
        _, log = server.end(signal.SIGTERM)
    lines = [json.loads(line) for line in log.splitlines() if line.startswith("{")]
    told = sum(line.get("path") == "/nothing" for line in lines)
    assert told < LINES
    assert told + sum(line.get("dropped", 0) for line in lines) >= LINES


@pytest.mark.parametrize("form", ["text", "json"])
def test_a_server_without_a_stderr_answers(tmp_path: Path, form: str) -> None:
    socket = tmp_path / "socket"
    arguments = (
        str(model_folder("llama-int4")),
        "--cache-dir",
        str(tmp_path),
        "--log-format",
        form,
        "--uds",
        str(socket),
    )
    shell = ["sh", "-c", 'exec "$0" serve "$@" 2>&-', COMMAND, *arguments]
    with subprocess.Popen(shell) as process:
        while not socket.exists():
            with suppress(subprocess.TimeoutExpired):
                process.wait(0.1)
                raise AssertionError("the server ended")
        with httpx.Client(transport=httpx.HTTPTransport(uds=str(socket), retries=10)) as client:
            assert client.get("http://here/nothing").status_code == 404
        process.send_signal(signal.SIGTERM)
    assert process.returncode == 0
