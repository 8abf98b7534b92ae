"""Files of configs/ made to fit a test, and the programs that read them."""

import os
import shutil
import socket
import ssl
import subprocess
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from subprocess import PIPE, Popen

import httpx
import pytest

ROOT = Path(__file__).parent.parent.parent
CONFIGS = ROOT / "configs"


def program(name: str, package: str) -> str:
    """Where a program is; the test skips aloud where it is not."""
    found = shutil.which(name, path=os.environ["PATH"] + ":/usr/sbin")
    if found is None:
        pytest.skip(f"{name} of Debian's {package} is not installed")
    return found


def copy(name: str, to: Path, changes: Mapping[str, str]) -> Path:
    """A file of configs/ with some of its texts replaced; each must be there."""
    text = (CONFIGS / name).read_text()
    for old, new in changes.items():
        assert old in text, f"{name} has no {old}"
        text = text.replace(old, new)
    (to / name).write_text(text)
    return to / name


def free_port() -> int:
    """A port that was free a moment ago."""
    with socket.create_server(("127.0.0.1", 0)) as taken:
        return int(taken.getsockname()[1])


@contextmanager
def running(*command: str, environ: Mapping[str, str] | None = None) -> Iterator[Popen[str]]:
    """A program for the length of a block."""
    with Popen(command, stdout=subprocess.DEVNULL, stderr=PIPE, text=True, env=environ) as process:
        try:
            yield process
        finally:
            process.terminate()
            process.communicate(timeout=60)


def answered(url: str, process: Popen[str], verify: ssl.SSLContext | bool = True) -> httpx.Response:
    """GET until something answers or the process has ended."""
    with httpx.Client(verify=verify) as client:
        while process.poll() is None:
            try:
                return client.get(url)
            except httpx.ConnectError:
                continue
    assert process.stderr is not None
    raise AssertionError(f"nothing answers at {url}: {process.stderr.read()}")
