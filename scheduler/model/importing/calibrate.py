"""Runs a packed graph over the calibration text and keeps what its linear layers and its cache are given.

The graph that runs has two-limb int8 layers, which lose next to nothing and fit where float weights would not. Knows
the packed interface; not what the measurements are used for.
"""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
import onnxruntime as ort

from scheduler.host import cores
from scheduler.model.importing.graph_file import save
from scheduler.model.importing.linear import quantise_linears
from scheduler.model.importing.progress import Progress
from scheduler.model.importing.weights import Floats, linears

ROWS = 256
"""Rows of each layer's input that are kept, spread over the text."""

PIECE = 256
"""Tokens that are run at a time: bounds what all layers' inputs take together."""

PIECES = 8
"""Pieces that are run, spread over the text, so that each of its kinds is met and a large model is done in a minute."""

_PRESENT = "prefill_present."
_PICKED = "calibration.rows"


@dataclass(frozen=True, slots=True)
class Calibration:
    """What a packed graph's layers were given on a text.

    Attributes:
        rows: [count, inner] of every linear layer's input, by the input's name.
        cache: the largest magnitude of every channel, [kv_heads, head_size], by cache, as in `3.key`.
    """

    rows: dict[str, Floats]
    cache: dict[str, Floats]


class Runner:
    """A packed graph that runs one text at a time, all of it prefill, with no cache before it."""

    def __init__(self, path: Path) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = cores()
        options.enable_cpu_mem_arena = False  # which takes up to twice what is needed, and gives nothing back
        options.log_severity_level = 3
        self._session = ort.InferenceSession(path, options, providers=["CPUExecutionProvider"])

    def run(self, tokens: Sequence[int], wanted: Sequence[str], more: Mapping[str, Any] | None = None) -> list[Floats]:
        """The named outputs for a text; `more` are inputs beyond the packed interface's."""
        return list(self._session.run(list(wanted), {**self._feed(tokens), **(more or {})}))

    def _feed(self, tokens: Sequence[int]) -> dict[str, npt.NDArray[Any]]:
        count = len(tokens)
        feed: dict[str, npt.NDArray[Any]] = {
            "input_ids": np.array([tokens], np.int64),
            "unpad": np.arange(1, count + 1),
            "logit_rows": np.arange(count),
            **_lengths("decode", 1, 0),
            **_lengths("prefill", count, count),
        }
        for value in self._session.get_inputs():
            if "_past." in value.name:
                feed[value.name] = np.zeros((1, value.shape[1], count + 1, value.shape[3]), np.float32)
        return feed


def _lengths(group: str, padded: int, count: int) -> dict[str, npt.NDArray[Any]]:
    """The inputs of a group of one slot."""
    return {
        f"{group}_rows": np.arange(padded),
        f"{group}_shape": np.array([1, padded, -1], np.int64),
        f"{group}_total": np.array(padded, np.int32),
        f"{group}_seqlens_k": np.array([max(count - 1, 0)], np.int32),
        f"{group}_query_seqlens": np.array([count], np.int32),
    }


def calibrate(packed: ir.Model, text: Sequence[int], context: int, near: Path, progress: Progress) -> Calibration:
    """Run a text through a packed graph and measure.

    Args:
        packed: the graph before its linear layers are quantised; it is not changed.
        text: the calibration text's tokens.
        context: tokens that the model can run at once.
        near: a folder on the file system where the model may be written for the while.
        progress: told of each piece.
    """
    model = packed.clone()
    names = _show_inputs(model)
    caches = [str(value.name) for value in model.graph.outputs if str(value.name).startswith(_PRESENT)]
    rows: dict[str, list[Floats]] = {name: [] for name in names}
    cache: dict[str, list[Floats]] = {name: [] for name in caches}
    with written(model, near, progress) as path:
        runner = Runner(path)
        chosen = spread(list(pieces(text, min(PIECE, context))), PIECES)
        total = sum(map(len, chosen))
        progress.start("calibrate", total)
        for piece in chosen:
            at = np.linspace(0, len(piece) - 1, max(ROWS * len(piece) // total, 1)).astype(np.int64)
            wanted = [*map(_picked, names), *caches]
            for name, array in zip([*names, *caches], runner.run(piece, wanted, {_PICKED: at}), strict=True):
                if name in cache:
                    cache[name].append(np.abs(array[0]).max(axis=1))
                else:
                    rows[name].append(array.reshape(-1, array.shape[-1]))
            progress.advance(len(piece))
        progress.done()
    return Calibration(
        {name: np.concatenate(found) for name, found in rows.items()},
        {name.removeprefix(_PRESENT): np.max(found, axis=0) for name, found in cache.items()},
    )


def _picked(name: str) -> str:
    """What the kept rows of an input are called."""
    return f"{name}.picked"


def _show_inputs(model: ir.Model) -> list[str]:
    """Quantise the graph with two limbs and make rows of its linear layers' inputs outputs of it; the inputs' names.

    Which rows is an input of the graph: all of them, of all layers at once, would be most of what a run takes.
    """
    layers = list(linears(model.graph))
    for layer in layers:
        layer.limbs = 2
    inputs = list(dict.fromkeys(layer.x for layer in layers))
    quantise_linears(model, layers)
    at = ir.Value(name=_PICKED, type=ir.TensorType(ir.DataType.INT64), shape=ir.Shape(["picked"]))
    model.graph.inputs.append(at)
    for value in inputs:
        name = _picked(str(value.name))
        rows = ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT))
        model.graph.append(ir.node("Gather", [value, at], attributes={"axis": -2}, outputs=[rows], name=name))
        model.graph.outputs.append(rows)
    return [str(value.name) for value in inputs]


@contextmanager
def written(model: ir.Model, near: Path, progress: Progress) -> Iterator[Path]:
    """A model on disk for the length of a block; gives the graph's path."""
    with TemporaryDirectory(dir=near, prefix=".calibration-") as folder:
        path = Path(folder) / "model.onnx"
        save(model, path, "write weights to measure with", progress)
        yield path


def spread(items: Sequence[Sequence[int]], count: int) -> list[Sequence[int]]:
    """At most so many of the items, evenly spaced, first and last among them."""
    at = np.unique(np.linspace(0, len(items) - 1, min(count, len(items))).astype(np.int64))
    return [items[i] for i in at.tolist()]


def pieces(text: Sequence[int], size: int) -> Iterator[Sequence[int]]:
    """A text in pieces of at most `size` tokens, none of a single one."""
    for start in range(0, len(text), size):
        piece = text[start : start + size]
        if len(piece) > 1:
            yield piece
