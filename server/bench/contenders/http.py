"""A server, asked over HTTP by a client that does no more than it must: a process on a free port, and its streams.

What tells one server from another is how it is started, where it says that it is ready, and what its requests need
besides. paceline is here; its peers, which are programs of others, are in `servers`.
"""

import http.client
import os
import signal
import socket
import subprocess
import sys
import time
from collections.abc import Mapping
from typing import ClassVar

import uvloop

from server.bench.child import Setup
from server.bench.client import Answer, completion_request, gather
from server.bench.options import BenchError
from server.bench.work import Run, Work
from server.environment import PREFIX

SERVE = "from server.cli import main; main()"
HOST = "127.0.0.1"
BETWEEN = 0.1
"""Seconds between two looks whether a server is ready."""


class Served:
    """A serving process and its clients; subclasses say which."""

    ready = "/health"
    """The path that is answered with 200 once the model is loaded."""

    fields: ClassVar[Mapping[str, object]] = {}
    """What requests need besides."""

    least: int | None = None
    """Tokens of an answer at the least, where the server cannot be told to go on past the end; else all."""

    def __init__(self, setup: Setup) -> None:
        self._port = _free_port()
        environ = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        command = self.command(setup, self._port)
        self._server = subprocess.Popen(command, env=environ | self.environ(setup), stdout=subprocess.DEVNULL)
        self.pid = self._server.pid
        try:
            self._wait()
        except BaseException:  # also where this process is told to end: nothing started is left behind
            self.close()
            raise

    def command(self, setup: Setup, port: int) -> list[str]:
        """The command line of the server."""
        raise NotImplementedError

    def environ(self, setup: Setup) -> dict[str, str]:  # noqa: ARG002 - for those that have some
        """What its environment has besides."""
        return {}

    def run(self, work: Work) -> Run:
        """Send every request at once and read the streams to their ends."""
        requests = [completion_request(self.prompt(p), work.new_tokens, self.fields) for p in work.prompts]
        seconds, answers = uvloop.run(gather(HOST, self._port, requests))
        for answer in answers:
            self._check(answer, work.new_tokens)
        return Run(seconds, sum(a.tokens for a in answers), [a.arrivals for a in answers])

    def prompt(self, tokens: list[int]) -> list[int] | str:
        """A prompt as the server takes it."""
        return tokens

    def close(self) -> None:
        """Let the server end as it would at Ctrl-C."""
        self._server.send_signal(signal.SIGTERM)
        self._server.wait()

    def _check(self, answer: Answer, new_tokens: int) -> None:
        if not answer.arrivals or not (self.least or new_tokens) <= answer.tokens <= new_tokens:
            said = answer.body[:500]
            raise BenchError(f"a request for {new_tokens} tokens was answered with {answer.tokens}: {said!r}")

    def _wait(self) -> None:
        """Until the model is loaded; what the server says goes to this process's standard error."""
        while self._server.poll() is None:
            connection = http.client.HTTPConnection(HOST, self._port)
            try:
                connection.request("GET", self.ready)
                if connection.getresponse().status == http.HTTPStatus.OK:
                    return
            except (OSError, http.client.HTTPException):
                pass  # not listening yet
            finally:
                connection.close()
            time.sleep(BETWEEN)
        raise BenchError(f"the server has ended with status {self._server.returncode}")


class HttpContender(Served):
    """paceline itself."""

    def command(self, setup: Setup, port: int) -> list[str]:
        """`paceline serve`, of this very code."""
        room = ["--slots", setup.concurrency, "--context", setup.context, "--threads", setup.threads]
        room += ["--step-rows", setup.step_rows, "--instruction-set", setup.instruction_set]
        place = ["--host", HOST, "--port", port, "--log-level", "warning"]
        return [sys.executable, "-c", SERVE, "serve", setup.path, *map(str, room + place)]


def _free_port() -> int:
    with socket.socket() as free:
        free.bind((HOST, 0))
        port: int = free.getsockname()[1]
        return port
