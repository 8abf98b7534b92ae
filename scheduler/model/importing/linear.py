"""The linear pass: float MatMuls with constant weights become W8A8, int8 weights times uint8 activations.

Weights have one symmetric scale per output channel, activations one per row: the row's largest magnitude over 127, zero
at 128. Products are summed as integers, exactly, so a row's result does not depend on the rows beside it:

    y[t, n] = sum_k (q[t, k] - 128) * w[k, n] / 127 * scale[n] * max_k |x[t, k]|

Knows MatMuls and constants; not what a model is, nor how the weights are stored.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from scheduler.model.importing.logical import dimensions

MICROSOFT = "com.microsoft"
_FLOOR = 1e-12  # a row of zeros is divided by this
_BLOCK = 2048  # output channels quantised at a time: bounds the temporary arrays


class QuantisedWeight:
    """A float weight [in, out] as int8 with a scale per output channel; its arrays are made when they are asked for."""

    def __init__(self, weight: ir.TensorProtocol) -> None:
        self._weight = weight
        self._scales: npt.NDArray[np.float32] | None = None

    def values(self) -> ir.TensorProtocol:
        """Make the int8 values, [in, out]; the scales are kept on the way, so that the weight is read once."""
        values, self._scales = quantise(self._weight.numpy())
        return ir.Tensor(values)

    def scales(self) -> ir.TensorProtocol:
        """Make the scales, float32 [out]."""
        if self._scales is None:
            self._scales = quantise(self._weight.numpy())[1]
        return ir.Tensor(self._scales)


def quantise(weight: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.int8], npt.NDArray[np.float32]]:
    """Round a weight [in, out] to int8 in -127..127 and a scale per output channel.

    The error of each element is at most half of its channel's scale.
    """
    values, scales = np.empty(weight.shape, np.int8), np.empty(weight.shape[1], np.float32)
    for start in range(0, weight.shape[1], _BLOCK):
        block = weight[:, start : start + _BLOCK]
        scale = np.maximum(np.maximum(block.max(axis=0), -block.min(axis=0)) / np.float32(127), np.float32(_FLOOR))
        scales[start : start + _BLOCK] = scale
        values[:, start : start + _BLOCK] = np.rint(block / scale)
    return values, scales


def quantise_linears(model: ir.Model) -> int:
    """Rewrite every MatMul with a constant float32 weight to W8A8, in place.

    Returns:
        How many there were.

    """
    graph, rows = model.graph, _Rows(model.graph)
    nodes = list(_linears(graph))
    for node in nodes:
        _rewrite(graph, node, rows)
    RemoveUnusedNodesPass()(model)
    return len(nodes)


class _Rows:
    """Quantises the rows of activations, once for all matmuls that read them."""

    def __init__(self, graph: ir.Graph) -> None:
        self._graph = graph
        self._made: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
        self._axis = _constant(graph, "w8a8.axis", np.array([-1], np.int64))
        self._floor = _constant(graph, "w8a8.floor", np.array(_FLOOR, np.float32))
        self.scale = _constant(graph, "w8a8.scale", np.array(1 / 127, np.float32))
        self.zero = _constant(graph, "w8a8.zero", np.array(128, np.uint8))

    def of(self, x: ir.Value, before: ir.Node) -> tuple[ir.Value, ir.Value]:
        """Return x [1, T, K] as (uint8 of x / largest, largest [1, T, 1]), made before the node that wants it."""
        if x not in self._made:
            size = self._add(before, "Abs", [x], f"{x.name}.abs")
            most = self._add(before, "ReduceMax", [size, self._axis], f"{x.name}.most")
            largest = self._add(before, "Max", [most, self._floor], f"{x.name}.largest")
            unit = self._add(before, "Div", [x, largest], f"{x.name}.unit")
            rounded = self._add(before, "QuantizeLinear", [unit, self.scale, self.zero], f"{x.name}.uint8")
            self._made[x] = rounded, largest
        return self._made[x]

    def _add(self, before: ir.Node, op: str, inputs: list[ir.Value], name: str) -> ir.Value:
        node = ir.node(op, inputs, outputs=[ir.Value(name=name)], name=name)
        self._graph.insert_before(before, node)
        return node.outputs[0]


def _linears(graph: ir.Graph) -> Iterator[ir.Node]:
    for node in graph:
        if node.op_type == "MatMul" and node.domain == "" and node.inputs[1] is not None:
            weight = node.inputs[1].const_value
            if weight is not None and weight.dtype == ir.DataType.FLOAT and len(dimensions(weight)) == 2:
                yield node


def _rewrite(graph: ir.Graph, node: ir.Node, rows: _Rows) -> None:
    x, weight = node.inputs
    assert x is not None
    assert weight is not None
    assert weight.const_value is not None
    inner, outer = dimensions(weight.const_value)
    quantised = QuantisedWeight(weight.const_value)
    name = str(weight.name)
    values = _lazy(graph, f"{name}_int8", ir.LazyTensor(quantised.values, ir.DataType.INT8, ir.Shape([inner, outer])))
    scales = _lazy(graph, f"{name}_scales", ir.LazyTensor(quantised.scales, ir.DataType.FLOAT, ir.Shape([outer])))
    rounded, largest = rows.of(x, node)
    product = ir.node(
        "MatMulIntegerToFloat",
        [rounded, values, rows.scale, scales, rows.zero],
        domain=MICROSOFT,
        outputs=[ir.Value(name=f"{name}.product")],
        name=f"{node.name}_W8A8",
    )
    rescale = ir.node("Mul", [product.outputs[0], largest], outputs=[ir.Value()], name=f"{name}.rescaled")
    graph.insert_before(node, [product, rescale])
    ir.convenience.replace_nodes_and_values(graph, node, [node], [], node.outputs, rescale.outputs)


def _constant(graph: ir.Graph, name: str, array: npt.NDArray[np.generic]) -> ir.Value:
    return _lazy(graph, name, ir.tensor(array, name=name))


def _lazy(graph: ir.Graph, name: str, tensor: ir.TensorProtocol) -> ir.Value:
    tensor.name = name
    shape, kind = ir.Shape(dimensions(tensor)), ir.TensorType(tensor.dtype)
    value = ir.Value(name=name, const_value=tensor, shape=shape, type=kind)
    graph.register_initializer(value)
    return value
