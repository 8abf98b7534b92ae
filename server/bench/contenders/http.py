"""paceline over HTTP: a real `paceline serve` on a free port, asked by a client that does no more than it must."""

import os
import re
import signal
import subprocess
import sys
import threading

import uvloop

from server.bench.child import Setup
from server.bench.client import Answer, completion_request, gather
from server.bench.options import BenchError
from server.bench.work import Run, Work
from server.environment import PREFIX

SERVE = "from server.cli import main; main()"
ADDRESS = re.compile(r"address\s+http://(\S+):(\d+)/v1")


class HttpContender:
    """A serving process and its clients."""

    def __init__(self, setup: Setup) -> None:
        room = ["--slots", setup.concurrency, "--context", setup.context, "--threads", setup.threads]
        command = [sys.executable, "-c", SERVE, "serve", str(setup.folder), *map(str, room)]
        command += ["--step-rows", str(setup.step_rows), "--host", "127.0.0.1", "--port", "0"]
        command += ["--log-level", "warning"]
        environ = {name: value for name, value in os.environ.items() if not name.startswith(PREFIX)}
        self._server = subprocess.Popen(
            command, env=environ, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
        )
        self.pid = self._server.pid
        self._host, self._port = self._address()

    def run(self, work: Work) -> Run:
        """Send every request at once and read the streams to their ends."""
        requests = [completion_request(prompt, work.new_tokens) for prompt in work.prompts]
        seconds, answers = uvloop.run(gather(self._host, self._port, requests))
        return Run(seconds, sum(a.tokens for a in answers), [_arrivals(a, work.new_tokens) for a in answers])

    def close(self) -> None:
        """Let the server end as it would at Ctrl-C."""
        self._server.send_signal(signal.SIGTERM)
        self._server.wait()

    def _address(self) -> tuple[str, int]:
        assert self._server.stderr is not None
        said = []
        for line in self._server.stderr:
            said.append(line)
            if found := ADDRESS.search(line):
                threading.Thread(target=self._server.stderr.read, daemon=True).start()  # or its pipe fills up
                return found[1], int(found[2])
        raise BenchError(f"the server did not come up:\n{''.join(said)}")


def _arrivals(answer: Answer, new_tokens: int) -> list[float]:
    if answer.tokens != new_tokens or not answer.arrivals:
        raise BenchError(f"a request for {new_tokens} tokens was answered with {answer.tokens}: {answer.body[:500]!r}")
    return answer.arrivals
