"""Times the cases, and the machine beside them: how fast it reads, and how fast it multiplies bytes in registers."""

from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import msgspec
import numpy as np
import onnxruntime as ort

from scheduler.model.kernels import library
from scheduler.model.memory import on_huge_pages
from server.bench.kernels.cases import Case


class Limits(msgspec.Struct, frozen=True):
    """What this machine can do at the most with so many threads: bytes read, and operations on bytes, a second."""

    read: float
    operations: float


class Found(msgspec.Struct, frozen=True):
    """The best of a case's runs."""

    operator: str
    kind: str
    rows: int
    seconds: float
    read: float
    operations: float


def limits(threads: int, size: int, times: int, repeats: int) -> Limits:
    """Read `size` bytes and multiply `times` times, on every thread at once; the best of the repeats."""
    parts = np.array_split(on_huge_pages(size), threads)
    for part in parts:
        part[:] = 1
    with ThreadPoolExecutor(threads) as pool:
        reading = best(repeats, lambda: list(pool.map(library.read, parts)))
        products = sum(pool.map(library.multiply, [times] * threads))
        multiplying = best(repeats, lambda: list(pool.map(library.multiply, [times] * threads)))
    return Limits(size / reading, 2 * products / multiplying)


def measured(cases: Iterator[Case], threads: int, repeats: int) -> Iterator[Found]:
    """Run each case on so many threads, once to warm up."""
    for case in cases:
        options = ort.SessionOptions()
        options.intra_op_num_threads = threads
        options.enable_mem_pattern = False
        library.register(options)
        session = ort.InferenceSession(case.model, options, providers=["CPUExecutionProvider"])
        binding = session.io_binding()
        for name, array in case.inputs.items():
            binding.bind_input(name, "cpu", 0, array.dtype.type, list(array.shape), array.ctypes.data)
        for output in session.get_outputs():
            binding.bind_output(output.name, "cpu")
        session.run_with_iobinding(binding)
        seconds = best(repeats, lambda: session.run_with_iobinding(binding))  # noqa: B023 - called at once
        yield Found(case.operator, case.kind, case.rows, seconds, case.read / seconds, case.operations / seconds)


def best(repeats: int, work: Callable[[], object]) -> float:
    """The shortest time of so many, in seconds: what others take of the machine only adds."""

    def once() -> float:
        begin = perf_counter()
        work()
        return perf_counter() - begin

    return min(once() for _ in range(repeats))
