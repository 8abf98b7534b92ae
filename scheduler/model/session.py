"""The onnxruntime session of a packed folder and its KV cache. Knows neither requests nor plans.

The graph's operators append to the cache in place, through the block tables: it is an input and no output. They check
every index before they touch memory, so what comes here wrong is an error of the run.
"""

import numpy as np
import onnxruntime as ort
from numpy.typing import NDArray

from scheduler.batch import CANDIDATES, Batch, Output
from scheduler.config import EngineConfig
from scheduler.errors import ModelFolderError, StepFailed
from scheduler.model.kernels import library
from scheduler.model.memory import Pages, read_weights
from scheduler.model.spec import ModelSpec

INPUTS = ("input_ids", "slots", "positions", "tables", "logit_rows", "temperatures", "weights", "cache")


class PackedSession:
    """Runs batches. Used by one thread, from birth to `close`.

    Raises ModelFolderError where the folder's graph cannot be loaded.
    """

    def __init__(self, spec: ModelSpec, config: EngineConfig) -> None:
        self._session = _load(spec, config.threads)
        self._binding = self._session.io_binding()
        self._weights = _weights(spec)
        self._pages = Pages(config.slots, config.context, spec.page_bytes)
        self._logits = np.zeros((config.slots, spec.vocab_size), np.float32)
        self._fed: list[NDArray[np.generic]] = []
        self._bind("weights", self._weights)
        self._bind("cache", self._pages.array)
        self._bind("tables", self._pages.tables)

    def run(self, batch: Batch, temperatures: NDArray[np.float32]) -> Output:
        """What the model says of the batch's logit rows, valid until the next run.

        Raises StepFailed where onnxruntime does; what the run's slots then hold is undefined.
        """
        self._fed = [batch.input_ids, batch.slots, batch.positions, batch.logit_rows, temperatures]
        self._bind("input_ids", batch.input_ids.reshape(1, -1))
        self._bind("slots", batch.slots)
        self._bind("positions", batch.positions)
        self._bind("logit_rows", batch.logit_rows)
        self._bind("temperatures", temperatures)
        output = self._output(len(batch.logit_rows))
        self._take("logits", output.logits[None])
        self._take("top_ids", output.top_ids)
        self._take("top_values", output.top_values)
        self._take("mass", output.mass)
        try:
            self._session.run_with_iobinding(self._binding)  # releases the GIL
        except Exception as error:
            raise StepFailed(f"the model run failed: {error}") from error
        return output

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Give the target slot the first `tokens` tokens of the source slot; what lies behind them is overwritten."""
        self._pages.copy(source, target, tokens)

    def release(self, slot: int, keep: int = 0) -> None:
        """Forget a slot's tokens and give their memory back to the system, but for what `keep` tokens take.

        What is left of them is overwritten before it is read: a slot's tokens count from its next owner's first.
        """
        self._pages.release(slot, keep)

    def close(self) -> None:
        """Let go of the session, the weights and the cache."""
        del self._binding, self._session, self._weights, self._pages

    def _output(self, rows: int) -> Output:
        logits, vocabulary = self._logits, self._logits.shape[1]
        if rows > len(logits):  # a scored prompt's: not kept
            logits = np.empty((rows, vocabulary), np.float32)
        wide = min(CANDIDATES, vocabulary)
        top_ids, top_values = np.empty((rows, wide), np.int32), np.empty((rows, wide), np.float32)
        return Output(logits[:rows], top_ids, top_values, np.empty(rows, np.float32))

    def _bind(self, name: str, array: NDArray[np.generic]) -> None:
        """Point an input to an array, which has to live for as long."""
        self._binding.bind_input(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)

    def _take(self, name: str, array: NDArray[np.generic]) -> None:
        """Have an output written to an array."""
        self._binding.bind_output(name, "cpu", 0, array.dtype.type, array.shape, array.ctypes.data)


def _weights(spec: ModelSpec) -> NDArray[np.int8]:
    path = spec.folder / "model.onnx.weights"
    try:
        return read_weights(path)
    except OSError as error:
        raise ModelFolderError(f"{path} cannot be read ({error}); import the model again") from error


def _load(spec: ModelSpec, threads: int) -> ort.InferenceSession:
    options = ort.SessionOptions()
    options.intra_op_num_threads = threads
    options.log_severity_level = 4  # what goes wrong is raised, and need not be written to stderr too
    # onnxruntime would keep a plan of its allocations for every set of shapes it has met. Steps are of thousands of
    # shapes: that is memory without end, and 0.92 times the speed.
    options.enable_mem_pattern = False
    # Between two runs the threads sleep instead of spinning: the cores are the event loop's then, and the clients'.
    options.add_session_config_entry("session.force_spinning_stop", "1")
    library.register(options)
    path = spec.folder / "model.onnx"
    try:
        session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])
    except Exception as error:
        raise ModelFolderError(f"{path} cannot be loaded: {error}") from error
    missing = set(INPUTS) - {i.name for i in session.get_inputs()}
    if missing:
        raise ModelFolderError(f"{path} is not a packed graph: it has no input {min(missing)}; import it first")
    return session
