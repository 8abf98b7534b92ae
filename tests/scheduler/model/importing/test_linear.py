import numpy as np
import onnx_ir as ir
import onnxruntime as ort
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from scheduler.model.importing.linear import quantise, quantise_linears
from scheduler.model.importing.weights import linears
from tests.scheduler.model.importing.runner import Floats

weights = st.tuples(st.integers(1, 40), st.integers(1, 30)).flatmap(
    lambda shape: arrays(np.float32, shape, elements=st.floats(-100, 100, width=32))
)


@given(weights)
def test_a_weights_error_is_at_most_half_its_channels_scale(weight: Floats) -> None:
    values, scales = quantise(weight)
    assert values.min(initial=0) >= -127
    error = np.abs(values.astype(np.float64) * scales - weight)
    assert (error <= 0.5 * scales * (1 + 1e-5)).all()
    assert (scales <= np.maximum(np.abs(weight).max(axis=0) / 127 * (1 + 1e-6), 1e-12)).all()


def session(weight: Floats, limbs: int = 1) -> ort.InferenceSession:
    """A model of two W8A8 matmuls that share an input."""
    x = ir.Value(name="x", type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1, "T", weight.shape[0]]))
    graph = ir.Graph([x], [], nodes=[], opset_imports={"": 22, "com.microsoft": 1}, name="two")
    for name in ("first", "second"):
        value = ir.Value(name=f"{name}.weight", const_value=ir.tensor(weight, name=f"{name}.weight"))
        graph.register_initializer(value)
        output = ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1, "T", weight.shape[1]]))
        graph.append(ir.node("MatMul", [x, value], outputs=[output], name=name))
        graph.outputs.append(output)
    model = ir.Model(graph, ir_version=10)
    layers = list(linears(graph))
    for layer in layers:
        layer.limbs = limbs
    quantise_linears(model, layers)
    assert [node.op_type for node in graph].count("QuantizeLinear") == limbs
    assert limbs == 2 or {node.op_type for node in graph}.isdisjoint({"MatMul"})
    return ort.InferenceSession(ir.to_proto(model).SerializeToString(), providers=["CPUExecutionProvider"])


@given(st.integers(0, 2**32 - 1))
@settings(max_examples=20, deadline=None)
def test_a_rows_result_is_near_the_float_product_and_does_not_depend_on_its_neighbours(seed: int) -> None:
    random = np.random.default_rng(seed)
    weight = random.standard_normal((64, 48)).astype(np.float32)
    rows = (random.standard_normal((1, 9, 64)) * 10 ** random.uniform(-4, 4, (1, 9, 1))).astype(np.float32)
    model = session(weight)
    first, second = model.run(None, {"x": rows})
    assert np.array_equal(first, second)
    exact = rows.astype(np.float64) @ weight
    assert (np.linalg.norm(first - exact, axis=-1) < 0.03 * np.linalg.norm(exact, axis=-1)).all()
    for row in range(rows.shape[1]):
        assert np.array_equal(model.run(["first"], {"x": rows[:, row : row + 1]})[0][0, 0], first[0, row])


def test_a_row_of_zeros_stays_zero() -> None:
    model = session(np.ones((8, 4), np.float32))
    assert not model.run(["first"], {"x": np.zeros((1, 2, 8), np.float32)})[0].any()
