import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.importing.weights import linears


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
    st.sampled_from([16, 32, 64, 128]),
    st.sampled_from([32, 48, 64, 96, 200]),
    st.integers(1, 9),
    st.booleans(),
)
@settings(max_examples=60)
def test_a_weight_of_n_bits_is_read_as_onnxruntime_multiplies_it(
    seed: int, bits: int, block: int, inner: int, outer: int, zeros: bool
) -> None:
    model = nbits(seed, bits, block, inner, outer, zeros)
    (layer,) = linears(model.graph, {})
    weight = layer.weight
    session = ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])
    (expected,) = session.run(None, {"x": np.eye(inner, dtype=np.float32)[None]})
    floats = weight.floats(0, outer)
    assert floats.shape == (outer, inner) == (weight.outer, weight.inner)
    np.testing.assert_allclose(floats.T, expected[0], rtol=1e-5, atol=1e-5)
    assert np.array_equal(weight.floats(outer // 2, outer), floats[outer // 2 :])
    assert (weight.form is None) == (block % 32 != 0)
    if weight.form is not None:
        blocks = weight.blocks(0, outer)
        assert blocks.d.dtype == weight.form.kind
        assert (blocks.m is not None) == weight.form.minimum
        np.testing.assert_allclose(blocks.floats(), floats, rtol=1e-5, atol=1e-4)


def test_zero_points_in_the_middle_need_no_minima() -> None:
    model = nbits(0, 4, 32, 64, 4, zeros=True)
    zeros = next(iter(model.graph)).inputs[3]
    assert zeros is not None
    zeros.const_value = ir.tensor(np.full((4, 1), 0x88, np.uint8), name="zeros")
    (layer,) = linears(model.graph, {})
    assert layer.weight.form is not None
    assert (layer.weight.form.zero, layer.weight.form.minimum) == (8, False)


@pytest.mark.parametrize("op", ["MatMul", "MatMulNBits"])
def test_a_layer_whose_weight_is_no_constant_is_passed_over(op: str) -> None:
    model = nbits(0, 4, 32, 32, 4, zeros=False)
    node = next(iter(model.graph))
    if op == "MatMul":
        other = ir.Value(name="w", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([32, 4]))
        model.graph.inputs.append(other)
        model.graph.append(ir.node("MatMul", [node.inputs[0], other], name="plain"))
        assert [layer.node.op_type for layer in linears(model.graph, {})] == ["MatMulNBits"]
    else:
        node.attributes["bits"] = ir.AttrInt64("bits", 2)
        assert list(linears(model.graph, {})) == []
