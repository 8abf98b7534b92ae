"""The linear pass: linear layers with constant weights become int8 weights times integer activations.

Weights have one symmetric scale per output channel, activations one per row, the row's largest magnitude m over 127, so
that no request's outlier coarsens a neighbour. Products are summed as integers, exactly, so a row's result does not
depend on the rows beside it:

    x = m / 127 * hi                           one limb: 8-bit activations
    x = m / 127 * (hi + lo / 254)              two limbs: lo is what rounding to hi left over, itself rounded
    y[t, n] = m[t] / 127 * scale[n] * sum_k (hi[t, k] + lo[t, k] / 254) * w[k, n]

The two limbs are rows of one matmul, so the weights are still read once.

A row of zeros has m = 0 and quantises to anything; its product is multiplied by m again and is 0.

Knows linear layers; not what a model is, nor how many limbs a layer deserves.
"""

from collections.abc import Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from scheduler.model.importing.logical import dimensions
from scheduler.model.importing.weights import MICROSOFT, Floats, Indices, Linear

_FLOOR = 1e-12  # the scale of a channel of zeros
_BLOCK = 2048  # output channels quantised at a time: bounds the temporary arrays
LIMB = 254
"""How many times finer the second limb is: its steps fill the half step up or down that rounding left."""


class QuantisedWeight:
    """A float weight [in, out] as int8 with a scale per output channel; its arrays are made when they are asked for."""

    def __init__(self, linear: Linear) -> None:
        self._linear = linear
        self._scales: Floats | None = None

    def values(self) -> ir.TensorProtocol:
        """Make the int8 values, [in, out]; the scales are kept on the way, so that the weight is read once."""
        values, self._scales = quantise(self._linear.read())
        return ir.Tensor(values)

    def scales(self) -> ir.TensorProtocol:
        """Make the scales, float32 [out]."""
        if self._scales is None:
            self._scales = quantise(self._linear.read())[1]
        return ir.Tensor(self._scales)


def quantise(weight: Floats) -> tuple[npt.NDArray[np.int8], Floats]:
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


def switch_name(x: ir.Value) -> str:
    """The graph input that weighs the limbs of the layers that read x, where limbs can be switched."""
    return f"int8.limbs.{x.name}"


ON, OFF = np.array([[1, 1 / LIMB]], np.float32), np.array([[1, 0]], np.float32)
"""What to feed a switch: both limbs, or the first alone, which gives what one limb would."""


def quantise_linears(model: ir.Model, layers: Sequence[Linear], *, switched: bool = False) -> None:
    """Rewrite the layers of a model, each with its limbs and scales, in place.

    `switched` makes the weight of the second limbs an input of the graph, so that what they buy can be measured.
    """
    writer = _Writer(model.graph, switched)
    for layer in layers:
        writer.rewrite(layer)
    RemoveUnusedNodesPass()(model)


def restore_floats(model: ir.Model, layers: Sequence[Linear]) -> None:
    """Rewrite the layers of a model to float32 MatMuls, in place: what the other forms are measured by."""
    writer = _Writer(model.graph, switched=False)
    for layer in layers:
        writer.restore(layer)
    RemoveUnusedNodesPass()(model)


class _Writer:
    """Writes integer linear layers into a graph; rows are quantised once for all layers that read them alike."""

    def __init__(self, graph: ir.Graph, switched: bool) -> None:
        self._graph = graph
        self._switched = switched
        self._switches: dict[str, ir.Value] = {}
        self._units: dict[ir.Value, tuple[ir.Value, ir.Value]] = {}
        self._rounded: dict[tuple[ir.Value, int], ir.Value] = {}
        self._copied: dict[ir.Value, ir.Value] = {}
        self._axis = self._constant("int8.axis", np.array([-1], np.int64))
        self._scale = self._constant("int8.scale", np.array(1 / 127, np.float32))
        self._low_scale = self._constant("int8.low_scale", np.array(1 / 127 / LIMB, np.float32))
        self._limbs = self._constant("int8.limbs", ON)
        self._pair = self._constant("int8.pair", np.array([2, -1], np.int64))
        self._zero = self._constant("int8.zero", np.array(128, np.uint8))

    def rewrite(self, layer: Linear) -> None:
        """Replace the layer's node."""
        node, quantised = layer.node, QuantisedWeight(layer)
        sizes = ir.Shape(layer.shape)
        values = self._lazy(f"{layer.name}_int8", ir.LazyTensor(quantised.values, ir.DataType.INT8, sizes))
        shape = ir.Shape(layer.shape[1:])
        scales = self._lazy(f"{layer.name}_scales", ir.LazyTensor(quantised.scales, ir.DataType.FLOAT, shape))
        rows, largest = self._quantised(layer, node)
        y = self._op(node, "MatMulIntegerToFloat", [rows, values, self._scale, scales, self._zero], f"{layer.name}.sum")
        if layer.limbs == 2:
            y = self._joined(y, layer, node)
        y = self._op(node, "Mul", [y, largest], f"{layer.name}.rescaled")
        if layer.bias is not None:
            y = self._op(node, "Add", [y, layer.bias], f"{layer.name}.biased")
        ir.convenience.replace_nodes_and_values(self._graph, node, [node], [], node.outputs, [y])

    def restore(self, layer: Linear) -> None:
        """Replace the layer's node by a MatMul of float32."""
        shape = ir.Shape(layer.shape)
        weight = ir.LazyTensor(lambda: ir.Tensor(np.ascontiguousarray(layer.read())), ir.DataType.FLOAT, shape)
        y = self._op(
            layer.node, "MatMul", [layer.x, self._lazy(f"{layer.name}_float", weight)], f"{layer.name}.product"
        )
        if layer.bias is not None:
            y = self._op(layer.node, "Add", [y, layer.bias], f"{layer.name}.biased")
        ir.convenience.replace_nodes_and_values(self._graph, layer.node, [layer.node], [], layer.node.outputs, [y])

    def _joined(self, y: ir.Value, layer: Linear, before: ir.Node) -> ir.Value:
        """The sum of both limbs' products, [2, T, N] to [1, T, N]: a product with [1, 1 / LIMB], in one pass."""
        width = self._constant(f"{layer.name}.shape", np.array([1, -1, layer.shape[1]], np.int64))
        flat = self._op(before, "Reshape", [y, self._pair], f"{layer.name}.pair")
        both = self._op(before, "MatMul", [self._limbs_of(layer.x), flat], f"{layer.name}.limbs")
        return self._op(before, "Reshape", [both, width], f"{layer.name}.joined")

    def _limbs_of(self, x: ir.Value) -> ir.Value:
        """What weighs the limbs of x: a constant, or a switch of its own."""
        if not self._switched:
            return self._limbs
        name = switch_name(x)
        if name not in self._switches:
            value = ir.Value(name=name, type=ir.TensorType(ir.DataType.FLOAT), shape=ir.Shape([1, 2]))
            self._graph.inputs.append(value)
            self._switches[name] = value
        return self._switches[name]

    def _quantised(self, layer: Linear, before: ir.Node) -> tuple[ir.Value, ir.Value]:
        """The rows of a layer's input as uint8 [limbs, T, K] around 128, and each row's largest magnitude [1, T, 1]."""
        x = layer.x
        unit, largest = self._unit(x, before)
        if (x, 1) not in self._rounded:
            self._rounded[x, 1] = self._op(before, "QuantizeLinear", [unit, self._scale, self._zero], f"{x.name}.high")
        if (x, layer.limbs) not in self._rounded:
            self._rounded[x, 2] = self._two_limbs(unit, self._rounded[x, 1], before)
        rounded = self._rounded[x, layer.limbs]
        return self._with_copies(rounded, layer.copies, before) if layer.copied else rounded, largest

    def _with_copies(self, rounded: ir.Value, copies: Indices | None, before: ir.Node) -> ir.Value:
        """Rows with their copied channels behind them; layers of one input have the same."""
        if copies is None:
            return rounded
        if rounded not in self._copied:
            name = str(rounded.name)
            index = self._constant(f"{name}.index", copies)
            extra = self._op(before, "Gather", [rounded, index], f"{name}.extra", axis=2)
            self._copied[rounded] = self._op(before, "Concat", [rounded, extra], f"{name}.copied", axis=2)
        return self._copied[rounded]

    def _unit(self, x: ir.Value, before: ir.Node) -> tuple[ir.Value, ir.Value]:
        """The rows of x over the largest magnitudes, and those."""
        if x not in self._units:
            size = self._op(before, "Abs", [x], f"{x.name}.abs")
            largest = self._op(before, "ReduceMax", [size, self._axis], f"{x.name}.largest")
            self._units[x] = self._op(before, "Div", [x, largest], f"{x.name}.unit"), largest
        return self._units[x]

    def _two_limbs(self, unit: ir.Value, high: ir.Value, before: ir.Node) -> ir.Value:
        name = unit.name
        coarse = self._op(before, "DequantizeLinear", [high, self._scale, self._zero], f"{name}.coarse")
        rest = self._op(before, "Sub", [unit, coarse], f"{name}.rest")
        low = self._op(before, "QuantizeLinear", [rest, self._low_scale, self._zero], f"{name}.low")
        return self._op(before, "Concat", [high, low], f"{name}.limbs", axis=0)

    def _op(self, before: ir.Node, op: str, inputs: list[ir.Value], name: str, **attributes: int) -> ir.Value:
        domain = MICROSOFT if op == "MatMulIntegerToFloat" else ""
        node = ir.node(op, inputs, attributes=attributes, domain=domain, outputs=[ir.Value(name=name)], name=name)
        self._graph.insert_before(before, node)
        return node.outputs[0]

    def _constant(self, name: str, array: npt.NDArray[np.generic]) -> ir.Value:
        return self._lazy(name, ir.tensor(array, name=name))

    def _lazy(self, name: str, tensor: ir.TensorProtocol) -> ir.Value:
        tensor.name = name
        shape, kind = ir.Shape(dimensions(tensor)), ir.TensorType(tensor.dtype)
        value = ir.Value(name=name, const_value=tensor, shape=shape, type=kind)
        self._graph.register_initializer(value)
        return value
