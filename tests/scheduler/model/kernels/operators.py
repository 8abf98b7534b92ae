"""Single operators in a graph of their own, and numpy in float64 beside them.

Weights are packed here once more, value by value and independently of the importer.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from numpy.typing import NDArray
from onnx import TensorProto, helper

from scheduler.model.kernels import library

Array = NDArray[Any]
THREADS = 2
PANEL = BLOCK = PAGE = 32
KINDS: dict[type, int] = {np.float32: TensorProto.FLOAT, np.int8: TensorProto.INT8, np.int32: TensorProto.INT32}
KINDS |= {np.int64: TensorProto.INT64}


@dataclass
class Bytes:
    """The file of weights: arrays one after the other, each at a place that is a multiple of 128."""

    data: bytearray = field(default_factory=bytearray)

    def add(self, array: Array) -> int:
        self.data += bytes(-len(self.data) % 128)
        place = len(self.data)
        self.data += np.ascontiguousarray(array).tobytes()
        return place

    def array(self) -> NDArray[np.int8]:
        return np.frombuffer(bytes(self.data) + bytes(8192), np.int8)


def run(op: str, inputs: Sequence[Array], outputs: Sequence[type], **attributes: float) -> list[Array]:
    """Run one operator on arrays, in whatever kernels are selected."""
    kinds = tuple(KINDS[array.dtype.type] for array in inputs)
    ranks = tuple(array.ndim for array in inputs)
    session = _session(op, kinds, ranks, tuple(KINDS[o] for o in outputs), tuple(sorted(attributes.items())))
    return list(session.run(None, {f"x{i}": array for i, array in enumerate(inputs)}))


@lru_cache(maxsize=256)
def _session(
    op: str,
    kinds: tuple[int, ...],
    ranks: tuple[int, ...],
    outputs: tuple[int, ...],
    attributes: tuple[tuple[str, float], ...],
) -> ort.InferenceSession:
    ins = [
        helper.make_tensor_value_info(f"x{i}", kind, [None] * rank)
        for i, (kind, rank) in enumerate(zip(kinds, ranks, strict=True))
    ]
    outs = [helper.make_tensor_value_info(f"y{i}", kind, None) for i, kind in enumerate(outputs)]
    values: dict[str, Any] = dict(attributes)
    node = helper.make_node(op, [i.name for i in ins], [o.name for o in outs], domain="paceline", **values)
    graph = helper.make_graph([node], "one", ins, outs)
    opsets = [helper.make_opsetid("", 22), helper.make_opsetid("paceline", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    options = ort.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = THREADS
    library.register(options)
    return ort.InferenceSession(onnx.ModelProto.SerializeToString(model), options, ["CPUExecutionProvider"])


# ---- weights ----


def padded(array: Array, value: float, *multiples: int) -> Array:
    """An array grown at its ends to multiples of what is given for each axis."""
    ends = [(0, -size % multiple) for size, multiple in zip(array.shape, multiples, strict=True)]
    return np.pad(array, ends, constant_values=value)


def panels(numbers: NDArray[np.uint8], fill: int, bits: int) -> NDArray[np.uint8]:
    """Unsigned numbers [K, N] as [panels, blocks, bytes]."""
    grown = padded(numbers, fill, BLOCK, PANEL)
    k, n = grown.shape
    cells = grown.reshape(k // BLOCK, 8, 4, n // PANEL, PANEL).transpose(3, 0, 1, 4, 2)  # [p, b, quad, channel, 4]
    if bits == 4:
        cells = cells[..., :16, :] | cells[..., 16:, :] << 4
    return np.ascontiguousarray(cells).reshape(n // PANEL, k // BLOCK, -1)


@dataclass(frozen=True)
class Weights:
    """What a linear node is given, and what it stands for."""

    dense: NDArray[np.float64]  # [K, N]
    attributes: Mapping[str, int]


def int8_weights(file: Bytes, numbers: NDArray[np.int64], scale: NDArray[np.float32]) -> Weights:
    """Numbers [K, N] in -127..127 with a scale for each output."""
    k, n = numbers.shape
    places = {
        "w_at": file.add(panels((numbers + 128).astype(np.uint8), 128, 8)),
        "scale_at": file.add(padded(scale, 0, PANEL)),
    }
    dense = numbers.astype(np.float64) * scale.astype(np.float64)
    return Weights(dense, {"form": 0, "k": k, "n": n, "zero": 128, **places})


def block_weights(file: Bytes, numbers: NDArray[np.int64], d: Array, m: Array | None, zero: int, bits: int) -> Weights:
    """Numbers [K, N] that count from `zero`, scales and minima [K / 32, N], float16 or float32."""
    k, n = numbers.shape
    cells = panels(numbers.astype(np.uint8), 0, bits)
    parts = [cells]
    for scales in (d, m) if m is not None else (d,):
        grown = padded(scales, 0, 1, PANEL)
        parts.append(grown.reshape(len(scales), -1, PANEL).transpose(1, 0, 2).copy().view(np.uint8))
    dense = (numbers - zero) * np.repeat(d.astype(np.float64), BLOCK, axis=0)[:k]
    if m is not None:
        dense += np.repeat(m.astype(np.float64), BLOCK, axis=0)[:k]
    attributes = {"form": 1 if bits == 4 else 2, "k": k, "n": n, "zero": zero, "half": int(d.dtype == np.float16)}
    attributes |= {"minimum": int(m is not None), "w_at": file.add(np.concatenate(parts, axis=2))}
    return Weights(dense, attributes)


def rounded_rows(x: Array) -> NDArray[np.float64]:
    """Rows [T, K] as the operators see them: whole multiples of a 127th of each block's largest magnitude.

    In float32 as they do it, so that ties fall alike.
    """
    rows, k = x.shape
    blocks = padded(x.astype(np.float32), 0, 1, BLOCK).reshape(rows, -1, BLOCK)
    largest = np.abs(blocks).max(axis=2, keepdims=True)
    up = np.divide(np.float32(127), largest, out=np.zeros_like(largest), where=largest > 1e-36)
    whole = np.rint(blocks * up).astype(np.float64)
    rounded: NDArray[np.float64] = (whole * (largest / np.float32(127))).reshape(rows, -1)[:, :k]
    return rounded
