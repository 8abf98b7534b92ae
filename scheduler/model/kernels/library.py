"""The operators' library as Python sees it: where it is, what this processor runs of it, what it was told to run.

ctypes opens the file that onnxruntime opens too, so that a choice holds for every session of the process. Knows no
graph.
"""

import ctypes
from functools import cache
from pathlib import Path

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from scheduler.errors import KernelsError
from scheduler.model.kernels import LIBRARY

INSTRUCTION_SETS = ("avx512vnni", "avxvnni", "avx2", "portable")
"""What there are tables of kernels for on any machine, the best first."""


def path() -> Path:
    """The library's file; raises KernelsError where it was never built."""
    found = Path(__file__).with_name(LIBRARY)
    if not found.is_file():
        raise KernelsError(f"the operators are not compiled, {LIBRARY} is missing: `pip install -e .` makes it")
    return found


def available() -> tuple[str, ...]:
    """The instruction sets that this processor runs, the best first."""
    names: bytes = _library().paceline_available()
    return tuple(names.decode().split(","))


def select(name: str | None = None) -> str:
    """Choose an instruction set for every session of this process, and say which; None and "auto" are the best.

    Raises KernelsError where this processor does not have it.
    """
    name = available()[0] if name in (None, "auto") else name
    if not _library().paceline_select(name.encode()):
        raise KernelsError(f"this processor does not run {name}: choose auto or one of {', '.join(available())}")
    return name


def selected() -> str:
    """The instruction set in use: the best, until `select` was told another."""
    name: bytes = _library().paceline_selected()
    return name.decode()


def register(options: ort.SessionOptions) -> None:
    """Let a session know the operators; raises KernelsError where onnxruntime is too old for them."""
    found = str(path())
    try:
        options.register_custom_ops_library(found)
    except Exception as error:
        raise KernelsError(f"onnxruntime {ort.__version__} does not take the operators: {error}") from error


def multiply(times: int) -> float:
    """Multiply bytes in registers alone, and say how many products that were; releases the GIL."""
    products: float = _library().paceline_multiply(times)
    return products


def read(memory: NDArray[np.int8]) -> None:
    """Read memory, in whole runs of 64 bytes, and do nothing with it; releases the GIL."""
    _library().paceline_read(memory.ctypes.data, memory.nbytes // 8)


@cache
def _library() -> ctypes.CDLL:
    found = path()
    try:
        library = ctypes.CDLL(str(found))
    except OSError as error:
        raise KernelsError(f"the operators cannot be loaded, install paceline anew: {error}") from error
    library.paceline_available.restype = library.paceline_selected.restype = ctypes.c_char_p
    library.paceline_select.argtypes = [ctypes.c_char_p]
    library.paceline_multiply.argtypes, library.paceline_multiply.restype = [ctypes.c_int], ctypes.c_double
    library.paceline_read.argtypes, library.paceline_read.restype = [ctypes.c_void_p, ctypes.c_uint64], ctypes.c_uint64
    return library
