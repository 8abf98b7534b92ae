"""The onnxruntime session of a packed folder and its KV cache. Knows neither requests nor plans.

Each layer has one buffer for keys and one for values, [slots, kv_heads, capacity, head_size], which both attention
groups bind in place: past and present are the same memory. The kernel backs a slot's pages only as its tokens
arrive, and `release` gives them back.
"""

import mmap
import os
from collections.abc import Iterator
from typing import Any

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from scheduler.batch import ABSENT_ROWS, Batch, Group
from scheduler.config import EngineConfig
from scheduler.errors import ModelFolderError, StepFailed
from scheduler.model.spec import ModelSpec

GROUPS = ("decode", "prefill")


class PackedSession:
    """Runs batches. Used by one thread, from birth to `close`.

    Raises ModelFolderError where the folder's graph cannot be loaded.
    """

    def __init__(self, spec: ModelSpec, config: EngineConfig) -> None:
        self._vocab_size = spec.vocab_size
        self._session = _load(spec, config.threads)
        self._binding = self._session.io_binding()
        dtype = _cache_type(self._session)
        shape = (config.slots, spec.kv_heads, config.capacity, spec.head_size)
        self._cache = {f"{i}.{side}": _Buffer(shape, dtype) for i in range(spec.layers) for side in ("key", "value")}
        self._idle = _Buffer((ABSENT_ROWS, spec.kv_heads, 2, spec.head_size), dtype)
        self._logits = np.zeros((config.slots, spec.vocab_size), np.float32)
        self._ranges: dict[str, tuple[int, int] | None] = {}
        self._fed: list[NDArray[np.generic]] = []

    def run(self, batch: Batch) -> NDArray[np.float32]:
        """The logits [R, vocabulary] of the batch's logit rows, valid until the next run.

        Raises StepFailed where onnxruntime does; what the run's slots then hold is undefined.
        """
        rows = len(batch.logit_rows)
        logits = self._logits
        if rows > len(logits):  # a scored prompt's: not kept
            logits = np.empty((rows, self._vocab_size), np.float32)
        self._fed.clear()  # the arrays of the run before, which the binding pointed to
        self._feed("input_ids", batch.input_ids.reshape(1, -1))
        self._feed("unpad", batch.unpad)
        self._feed("logit_rows", batch.logit_rows)
        self._bind_group("decode", batch.decode)
        self._bind_group("prefill", batch.prefill)
        shape = [1, rows, self._vocab_size]
        self._binding.bind_output("logits", "cpu", 0, np.float32, shape, logits.ctypes.data)
        try:
            self._session.run_with_iobinding(self._binding)  # releases the GIL
        except Exception as error:
            raise StepFailed(f"the model run failed: {error}") from error
        return logits[:rows]

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Give the target slot the first `tokens` tokens of the source slot; what lies behind them is overwritten."""
        if source == target:
            return
        for buffer in self._cache.values():
            buffer.array[target, :, :tokens] = buffer.array[source, :, :tokens]

    def release(self, slot: int, keep: int = 0) -> None:
        """Forget a slot's tokens and give their memory back to the system, but for what `keep` tokens take.

        What is left of them is overwritten before it is read: a slot's tokens count from its next owner's first.
        """
        for buffer in self._cache.values():
            buffer.release(slot, keep)

    def close(self) -> None:
        """Let go of the session and the cache."""
        del self._binding, self._session
        self._cache.clear()

    def _bind_group(self, name: str, group: Group | None) -> None:
        if group is None:
            rows, shape = np.zeros(ABSENT_ROWS, np.int64), [ABSENT_ROWS, 1, -1]
            zeros, total = np.zeros(ABSENT_ROWS, np.int32), 1
            self._feed_group(name, rows, shape, zeros, zeros, total)
        else:
            shape = [group.width, group.longest, -1]
            self._feed_group(name, group.rows, shape, group.seqlens_k, group.query_seqlens, group.total)
        self._bind_cache(name, (group.first, group.width) if group else None)

    def _feed_group(  # the five inputs of a group, in the contract's order
        self,
        name: str,
        rows: NDArray[np.int64],
        shape: list[int],
        seqlens_k: NDArray[np.int32],
        query_seqlens: NDArray[np.int32],
        total: int,
    ) -> None:
        self._feed(f"{name}_rows", rows)
        self._feed(f"{name}_shape", np.array(shape, np.int64))
        self._feed(f"{name}_seqlens_k", seqlens_k)
        self._feed(f"{name}_query_seqlens", query_seqlens)
        self._feed(f"{name}_total", np.array(total, np.int32))

    def _bind_cache(self, name: str, slots: tuple[int, int] | None) -> None:
        """Point the group to its slots (first, width), or to the idle slot; only where they have changed."""
        if name in self._ranges and self._ranges[name] == slots:
            return
        first, width = slots or (0, ABSENT_ROWS)
        for key, buffer in self._cache.items():
            used = buffer if slots else self._idle
            shape, pointer = [width, *used.array.shape[1:]], used.array[first:].ctypes.data
            kind = used.array.dtype.type
            self._binding.bind_input(f"{name}_past.{key}", "cpu", 0, kind, shape, pointer)
            self._binding.bind_output(f"{name}_present.{key}", "cpu", 0, kind, shape, pointer)
        self._ranges[name] = slots

    def _feed(self, name: str, array: NDArray[np.generic]) -> None:
        self._fed.append(array)
        shape, pointer = list(array.shape), array.ctypes.data
        self._binding.bind_input(name, "cpu", 0, array.dtype.type, shape, pointer)


class _Buffer:
    """A KV buffer whose pages the kernel backs on first touch."""

    def __init__(self, shape: tuple[int, int, int, int], dtype: np.dtype[np.generic]) -> None:
        size = int(np.prod(shape)) * dtype.itemsize
        # private, since the pages of shared memory would not come back
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
        self.array = np.frombuffer(self._map, dtype).reshape(shape)
        self._stride = size // shape[0]

    def release(self, slot: int, keep: int) -> None:
        """Give back a slot's memory, each head's behind its first `keep` tokens."""
        _, heads, capacity, _ = self.array.shape
        if keep == 0:
            self._give_back(slot * self._stride, (slot + 1) * self._stride)
            return
        run = self._stride // heads
        for start in range(slot * self._stride, (slot + 1) * self._stride, run):
            self._give_back(start + run // capacity * keep, start + run)

    def _give_back(self, start: int, end: int) -> None:
        """The whole pages between two places; the ragged ends are shared with what lies beside them."""
        first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first:
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)


def _load(spec: ModelSpec, threads: int) -> ort.InferenceSession:
    # GroupQueryAttention has a blocked ("flash") form for chunks. Its sums depend on how a prompt was cut, so results
    # would not be the same bits in any company, and on a CPU it is slower (a chunk of 256: 1.5 to 2.5 ms a layer for
    # 0.8). onnxruntime knows no other switch for it than this variable, read when the kernel is made.
    os.environ["ORT_GQA_DISABLE_FLASH_ATTENTION"] = "1"
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # what goes wrong is raised, and need not be written to stderr too
    # onnxruntime would keep a plan of its allocations for every set of shapes it has met. Steps are of thousands of
    # shapes: that is memory without end, and 0.92 times the speed.
    options.enable_mem_pattern = False
    # Between two runs the threads sleep instead of spinning: the cores are the event loop's then, and the clients'.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    path = spec.folder / "model.onnx"
    try:
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ModelFolderError(f"{path} cannot be loaded: {error}") from error
    missing = set(_inputs(spec)) - {i.name for i in session.get_inputs()}
    if missing:
        raise ModelFolderError(f"{path} is not a packed graph: it has no input {min(missing)}; import it first")
    return session


def _cache_type(session: ort.InferenceSession) -> np.dtype[np.generic]:
    """What the graph's KV cache is made of."""
    kinds: dict[str, np.dtype[Any]] = {"tensor(float)": np.dtype(np.float32), "tensor(int8)": np.dtype(np.int8)}
    (past,) = (i for i in session.get_inputs() if i.name == "decode_past.0.key")
    return kinds[past.type]


def _inputs(spec: ModelSpec) -> Iterator[str]:
    yield from ("input_ids", "unpad", "logit_rows")
    for group in GROUPS:
        yield from (f"{group}_{part}" for part in ("rows", "shape", "seqlens_k", "query_seqlens", "total"))
        yield from (f"{group}_past.{i}.{side}" for i in range(spec.layers) for side in ("key", "value"))
