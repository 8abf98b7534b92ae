import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.importing.weights import linears
from tests.scheduler.model.importing.runner import Floats


def nbits(seed: int, bits: int, block: int, inner: int, outer: int, zeros: bool) -> ir.Model:
    """A MatMulNBits with random contents, and nothing else."""
    random = np.random.default_rng(seed)
    blocks = -(-inner // block)
    arrays = {
        "packed": random.integers(0, 256, (outer, blocks, block * bits // 8), np.uint8),
        "scales": random.uniform(0.1, 1, (outer, blocks)).astype(np.float32),
        "zeros": random.integers(0, 256, (outer, -(-blocks * bits // 8)), np.uint8),
    }
    values = {name: ir.Value(name=name, const_value=ir.tensor(array, name=name)) for name, array in arrays.items()}
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1, "T", inner]))
    y = ir.Value(name="y", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1, "T", outer]))
    inputs = [x, values["packed"], values["scales"], *([values["zeros"]] if zeros else [])]
    attributes = {"K": inner, "N": outer, "bits": bits, "block_size": block}
    node = ir.node("MatMulNBits", inputs, attributes, domain="com.microsoft", outputs=[y], name="layer")
    graph = ir.Graph([x], [y], nodes=[node], opset_imports={"": 22, "com.microsoft": 1}, name="one")
    for value in inputs[1:]:
        graph.register_initializer(value)
    return ir.Model(graph, ir_version=10)


@given(
    st.integers(0, 2**32 - 1),
    st.sampled_from([4, 8]),
    st.sampled_from([16, 32, 64]),
    st.sampled_from([32, 48, 64, 96]),
    st.integers(1, 9),
    st.booleans(),
)
@settings(max_examples=60, deadline=None)
def test_a_weight_of_n_bits_is_read_as_onnxruntime_multiplies_it(
    seed: int, bits: int, block: int, inner: int, outer: int, zeros: bool
) -> None:
    model = nbits(seed, bits, block, inner, outer, zeros)
    (layer,) = linears(model.graph)
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": np.eye(inner, dtype=np.float32)[None]})
    assert layer.shape == layer.read().shape == (inner, outer)
    np.testing.assert_allclose(layer.read(), expected[0], rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("op", ["MatMul", "MatMulNBits"])
def test_a_layer_whose_weight_is_no_constant_is_passed_over(op: str) -> None:
    model = nbits(0, 4, 32, 32, 4, zeros=False)
    node = next(iter(model.graph))
    if op == "MatMul":
        other = ir.Value(name="w", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([32, 4]))
        model.graph.inputs.append(other)
        new = ir.node("MatMul", [node.inputs[0], other], name="plain")
    else:
        node.attributes["bits"] = ir.AttrInt64("bits", 2)
        new = None
    if new is not None:
        model.graph.append(new)
        assert [layer.node.op_type for layer in linears(model.graph)] == ["MatMulNBits"]
    else:
        assert list(linears(model.graph)) == []


def test_copies_and_scales_leave_what_two_layers_compute_together() -> None:
    random = np.random.default_rng(3)
    (first,), (second,) = (linears(nbits(seed, 8, 32, 32, 32, zeros=False).graph) for seed in (1, 2))
    x: Floats = random.standard_normal((5, 32)).astype(np.float32)
    expected = x @ first.read() @ second.read()
    scale = random.uniform(0.5, 2, 32).astype(np.float32)
    copies = np.array([3, 3, 7], np.int64)
    share = (1 + np.bincount(copies, minlength=32)).astype(np.float32)
    first.out_scale, first.out_copies = scale * share, copies
    second.in_scale, second.copies = scale, copies
    assert first.shape == (32, 35)
    assert second.shape == (35, 32)
    np.testing.assert_allclose(x @ first.read() @ second.read(), expected, rtol=2e-4, atol=1e-3)
