"""The inside of a contender's process: told by lines of JSON what to do.

    in    a Setup                   out   a Ready, once the model is loaded
    in    a Work, any number        out   a Run for each
    in    the end, or SIGTERM       the process ends, and what it started with it

What libraries print goes to the standard error, so that the answers stay readable.
"""

import os
import signal
import sys
from pathlib import Path
from pkgutil import resolve_name
from typing import BinaryIO, Protocol, cast

import msgspec

from server.bench.options import BenchError
from server.bench.work import Run, Work

CONTENDERS = {
    "paceline": "server.bench.contenders.http:HttpContender",
    "engine": "server.bench.contenders.engine:EngineContender",
    "og-threads": "server.bench.contenders.genai:ThreadsContender",
    "og-batch": "server.bench.contenders.genai:BatchContender",
    "openvino": "server.bench.contenders.openvino:OpenVinoContender",
    "llama-server": "server.bench.contenders.servers:LlamaServer",
    "vllm": "server.bench.contenders.servers:Vllm",
    "onnx-genai": "server.bench.contenders.servers:OnnxGenai",
}


class Setup(msgspec.Struct, frozen=True):
    """Which contender, and its room.

    Attributes:
        kind: a key of CONTENDERS.
        path: the packed folder, the genai folder or the GGUF file it runs.
        threads: of its model run.
        concurrency: requests at once at the most.
        context: tokens of one request at the most, prompt and new ones.
        step_rows: tokens of one of paceline's steps at the most.
        instruction_set: what paceline's operators use of the processor.
    """

    kind: str
    path: str
    threads: int
    concurrency: int
    context: int
    step_rows: int
    instruction_set: str

    @property
    def folder(self) -> Path:
        """The path, as one."""
        return Path(self.path)


class Ready(msgspec.Struct, frozen=True):
    """The model is loaded; `pid` is the process that holds it."""

    pid: int


class Contender(Protocol):
    """Whoever does the work."""

    pid: int

    def run(self, work: Work) -> Run:
        """Do the work, and tell how it went."""

    def close(self) -> None:
        """Stop what was started."""


def main() -> None:
    """Serve one parent until its pipe closes; what cannot be measured is the last that is said."""
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # by way of `finally`: nothing started is left behind
    try:
        answer()
    except BenchError as error:
        sys.exit(str(error))  # without its way here, so that what a server said stays in sight


def answer() -> None:
    """Load what the first line names, and do the work of the others."""
    answers, lines = private_output(), sys.stdin.buffer
    contender = open_contender(msgspec.json.decode(lines.readline(), type=Setup))
    try:
        answers.write(msgspec.json.encode(Ready(contender.pid)) + b"\n")
        for line in lines:
            run = contender.run(msgspec.json.decode(line, type=Work))
            answers.write(msgspec.json.encode(run) + b"\n")
    finally:
        contender.close()


def private_output() -> BinaryIO:
    """The standard output for this process's answers alone; what else is printed goes to the standard error."""
    answers = os.fdopen(os.dup(1), "wb", buffering=0)
    os.dup2(2, 1)
    return cast("BinaryIO", answers)


def open_contender(setup: Setup) -> Contender:
    """Load the model; what the other contenders need is not imported, for memory's sake."""
    return cast("Contender", resolve_name(CONTENDERS[setup.kind])(setup))
