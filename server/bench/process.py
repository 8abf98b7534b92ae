"""A contender's process, seen from outside: started, given work, watched, ended. Knows no contender by name."""

import os
import signal
import subprocess
import sys
import tempfile
from types import TracebackType
from typing import TypeVar

import msgspec

from server.bench.child import Setup
from server.bench.memory import MemoryWatch
from server.bench.options import BenchError
from server.bench.work import Run, Work

T = TypeVar("T")
CHILD = "server.bench.child"
PATIENCE = 60
"""Seconds that a process has to end by itself."""


class Process:
    """A module's `main` in a process of its own, for the length of a block; it speaks lines of JSON.

    Raises BenchError, with the last lines of what it said, where it ends before it has answered.
    """

    def __init__(self, setup: Setup, module: str = CHILD) -> None:
        self._setup = setup
        self._errors = tempfile.TemporaryFile()  # noqa: SIM115 - closed on exit
        self._process = subprocess.Popen(
            [sys.executable, "-c", f"from {module} import main; main()"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._errors,
            start_new_session=True,  # Ctrl-C reaches the parent alone, which ends its children in order
        )

    def __enter__(self) -> "Process":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        if error is None:
            self._process.stdin.close()
        else:
            self._process.terminate()
        try:
            self._process.wait(PATIENCE)
        except subprocess.TimeoutExpired:
            os.killpg(self._process.pid, signal.SIGKILL)  # with what it started
            self._process.wait()
        self._process.stdin.close()
        self._process.stdout.close()
        self._errors.close()

    def ask(self, question: msgspec.Struct, answer: type[T]) -> T:
        """Write a line, and read the line that answers it."""
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        try:
            self._process.stdin.write(msgspec.json.encode(question) + b"\n")
            self._process.stdin.flush()
            line = self._process.stdout.readline()
        except BrokenPipeError:
            line = b""
        if not line:
            raise BenchError(f"{self._setup.kind} has ended: {self._last_words()}")
        return msgspec.json.decode(line, type=answer)

    def _last_words(self) -> str:
        self._process.wait(PATIENCE)
        self._errors.seek(0)
        lines = self._errors.read().decode(errors="replace").strip().splitlines()
        return "\n".join(lines[-5:]) or "it said nothing"


def watched(process: Process, pid: int, work: Work) -> Run:
    """Do some work, and add what memory it took at the most."""
    with MemoryWatch(pid) as watch:
        run = process.ask(work, Run)
    return msgspec.structs.replace(run, rss=watch.rss, anonymous=watch.anonymous)
