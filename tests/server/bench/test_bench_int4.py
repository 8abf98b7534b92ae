"""The int4 folders that peers run."""

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from numpy.typing import NDArray

from server.bench.genai_folder import BLOCK, int4, quantise


def unpacked(values: NDArray[np.uint8], scales: NDArray[np.float32], inner: int) -> NDArray[np.float32]:
    """The weight [in, out] that the bytes stand for."""
    outer = len(values)
    pairs = np.stack([values & 15, values >> 4], -1).reshape(outer, -1, BLOCK).astype(np.float32) - 8
    weight: NDArray[np.float32] = (pairs * scales.reshape(outer, -1, 1)).reshape(outer, -1)[:, :inner].T
    return weight


def test_each_element_is_within_its_blocks_scale() -> None:
    weight = np.random.default_rng(0).standard_normal((80, 24)).astype(np.float32)
    values, scales = int4(weight)
    assert values.shape == (24, 3, 16)
    bound = np.abs(scales).reshape(24, 3).repeat(BLOCK, 1)[:, :80].T
    assert (np.abs(unpacked(values, scales, 80) - weight) <= bound * 1.001).all()


def test_a_block_of_zeros_stays_zero() -> None:
    values, scales = int4(np.zeros((32, 2), np.float32))
    assert (unpacked(values, scales, 32) == 0).all()


def test_the_graph_computes_with_the_int4_weight() -> None:
    generator = np.random.default_rng(1)
    weight = generator.standard_normal((64, 40)).astype(np.float32)
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1, "T", 64]))
    w = ir.Value(name="w", const_value=ir.tensor(weight, name="w"), shape=ir.Shape([64, 40]))
    node = ir.node("MatMul", [x, w], outputs=[ir.Value(name="y", type=ir.TensorType(ir.DataType.FLOAT))])
    graph = ir.Graph([x], node.outputs, nodes=[node], initializers=[w], opset_imports={"": 22, "com.microsoft": 1})
    model = ir.Model(graph, ir_version=10)
    quantise(model)
    assert [n.op_type for n in graph] == ["MatMulNBits"]
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    rows = generator.standard_normal((1, 5, 64)).astype(np.float32)
    expected = rows @ unpacked(*int4(weight), 64)
    (result,) = session.run(None, {"x": rows})
    assert np.abs(np.asarray(result) - expected).max() < 0.1 * np.abs(expected).max()  # activations are int8
