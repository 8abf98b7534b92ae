"""What is measured of each operator: a graph of it alone, its inputs, and what a run reads and computes.

Matrices are as wide as a model's of a billion weights, and there are so many of them, one after the other, that they
come from memory. Numbers are small and finite; which ones they are changes no time.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

from scheduler.model.memory import on_huge_pages

PANEL = BLOCK = PAGE = 32
FILLED = 0x11
"""Every byte of the weights: as a float16, a float32 or a number of 4 or 8 bits it is an ordinary one."""

FORMS = {"int8": (0, 1024, 0), "8-bit blocks": (2, 1024, 128), "4-bit blocks": (1, 512, 128)}
"""By name: the attribute, bytes of a block of 32 x 32 numbers, and of its float16 scales and minima."""

HEADS, KV_HEADS, HEAD_SIZE = 16, 4, 64
MOST_SEQUENCES = 32
Array = NDArray[np.generic]


@dataclass(frozen=True, slots=True)
class Case:
    """One operator with some rows.

    Attributes:
        read: bytes that a run reads, of weights, cache or logits.
        operations: multiplications and additions of a run, each counted; 0 where they are not what it is about.
    """

    operator: str
    kind: str
    rows: int
    model: bytes
    inputs: Mapping[str, Array]
    read: int
    operations: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Size:
    """How large the cases are."""

    width: int = 2048
    matrices: int = 48
    cached: int = 512
    vocabulary: int = 49152


def cases(rows: tuple[int, ...], size: Size) -> Iterator[Case]:
    """Every operator with each number of rows; one is alive at a time."""
    for form in FORMS:
        for count in rows:
            yield linear(form, count, size)
    for kind in ("float32", "float16", "int8"):
        for count in rows:
            yield attention(kind, count, size)
    for count in rows:
        yield candidates(count, size)


def linear(form: str, rows: int, size: Size) -> Case:
    """Layers that add to one residual: LinearAdd, whose kernel is that of Linear and LinearPick."""
    number, block, scales = FORMS[form]
    k = n = size.width
    each = (n // PANEL) * (k // BLOCK) * (block + scales)
    weights = on_huge_pages(size.matrices * each + n * 4 + 8192)
    weights[:] = FILLED
    given: dict[str, float] = {
        "form": number,
        "k": k,
        "n": n,
        "norm": 0,
        "epsilon": 1e-5,
        "half": 1,
        "minimum": int(scales > 0),
    }
    given |= {"zero": 0 if scales else 128, "scale_at": size.matrices * each}
    x, y = _value("x", ir.DataType.FLOAT, [1, "T", k]), _value("y", ir.DataType.FLOAT, [1, "T", n])
    file = _value("weights", ir.DataType.INT8, ["W"])
    nodes, last = [], y
    for place in range(size.matrices):
        node = _node("LinearAdd", [x, file, last], 1, {**given, "w_at": place * each})
        nodes.append(node)
        last = node.outputs[0]
        last.shape, last.dtype = y.shape, ir.DataType.FLOAT
    inputs: dict[str, Array] = {
        "x": np.ones((1, rows, k), np.float32),
        "y": np.zeros((1, rows, n), np.float32),
        "weights": weights,
    }
    model = _model([x, file, y], nodes, [last])
    return Case("LinearAdd", form, rows, model, inputs, size.matrices * each, 2 * rows * k * n * size.matrices)


def attention(kind: str, rows: int, size: Size) -> Case:
    """A row for each of so many sequences of the same length, or a chunk of one; layer after layer."""
    number = ("float32", "float16", "int8").index(kind)
    layers = max(1, size.matrices // 4)
    unit = PAGE * HEAD_SIZE * (4, 2, 1)[number] + 128 * (number == 2)
    sequences, cached = (rows, size.cached) if rows <= MOST_SEQUENCES else (1, max(size.cached, rows))
    pages = -(-cached // PAGE)
    cache = np.zeros((sequences * pages, layers * 2 * KV_HEADS * unit), np.int8)
    columns = (HEADS + 2 * KV_HEADS) * HEAD_SIZE
    given: dict[str, float] = {
        "heads": HEADS,
        "kv_heads": KV_HEADS,
        "head_size": HEAD_SIZE,
        "kind": number,
        "layers": layers,
    }
    given |= {"k_at": HEADS * HEAD_SIZE, "v_at": (HEADS + KV_HEADS) * HEAD_SIZE, "scale": 0.125, "window": 0}
    positions = np.arange(cached - rows // sequences, cached, dtype=np.int32).repeat(sequences)
    inputs: dict[str, Array] = {
        "x": np.ones((1, rows, columns), np.float32),
        "slots": np.arange(rows, dtype=np.int32) % sequences,
        "positions": positions,
        "tables": np.arange(sequences * pages, dtype=np.int32).reshape(sequences, pages),
        "weights": np.zeros(8192, np.int8),
        "cache": cache,
    }
    values = {name: _value(name, ir.DataType.from_numpy(a.dtype), list(a.shape)) for name, a in inputs.items()}
    x, *rest = values.values()
    nodes = [_node("Attention", [x, x, x, *rest], 1, {**given, "layer": i, "softcap": 0.0}) for i in range(layers)]
    model = _model(list(values.values()), nodes, [node.outputs[0] for node in nodes])
    products = int((positions + 1).sum()) * HEADS * HEAD_SIZE * 2
    return Case("Attention", kind, rows, model, inputs, cache.nbytes, 2 * products * layers)


def candidates(rows: int, size: Size) -> Case:
    """The likeliest of so many logits, and the mass of all."""
    logits = np.random.default_rng(0).normal(size=(1, rows, size.vocabulary)).astype(np.float32)
    inputs: dict[str, Array] = {"logits": logits, "temperatures": np.ones(rows, np.float32)}
    values = [_value(name, ir.DataType.FLOAT, list(array.shape)) for name, array in inputs.items()]
    node = _node("Candidates", values, 3, {})
    return Case("Candidates", "float32", rows, _model(values, [node], node.outputs), inputs, logits.nbytes, 0)


def _value(name: str, dtype: ir.DataType, shape: list[int | str]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))


def _node(operator: str, inputs: list[ir.Value], outputs: int, attributes: Mapping[str, float]) -> ir.Node:
    return ir.node(operator, inputs, attributes, domain="paceline", num_outputs=outputs)


def _model(inputs: Sequence[ir.Value], nodes: Sequence[ir.Node], outputs: Sequence[ir.Value]) -> bytes:
    graph = ir.Graph(inputs, outputs, nodes=nodes, opset_imports={"": 22, "paceline": 1}, name="kernels")
    return bytes(ir.to_proto(ir.Model(graph, ir_version=10)).SerializeToString())
