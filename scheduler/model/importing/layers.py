"""Linear layers with what belongs to them: the norm before, bias, factor and gate behind, the residual.

Finds them in a logical graph whose sums and norms are apart; changes nothing. Knows the builder's patterns, not how
layers are computed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from scheduler.model.importing.interface import scalar
from scheduler.model.importing.logical import dimensions
from scheduler.model.importing.stored import GATED, Gates, Stored, interleaved
from scheduler.model.importing.weights import Linear, array

Floats = npt.NDArray[np.float32]
SILU, GELU = 1, 2


@dataclass(frozen=True, slots=True)
class Norm:
    """A norm that is not centred, or (`centred`) one that is; without a weight it has ones."""

    epsilon: float
    weight: ir.Value | None
    centred: bool = False


@dataclass(frozen=True, slots=True, eq=False)
class Layer:
    """y = [residual +] act(alpha * (norm(x) @ weight + bias)).

    Attributes:
        name: the weight's, or the weights', unique in the graph.
        out: the value that it makes.
        last: the node that makes it, before which all that it needs is there.
        bias: reads it, [out]; or None.
        act: 0, SILU or GELU: the weight holds gates and ups in turns.
        matmul: the node that multiplies, of the gates where there are gates.
    """

    name: str
    x: ir.Value
    weight: Stored
    out: ir.Value
    last: ir.Node
    matmul: ir.Node
    norm: Norm | None = None
    bias: Callable[[], Floats] | None = field(default=None)
    alpha: float = 1.0
    act: int = 0
    residual: ir.Value | None = None

    @property
    def width(self) -> int:
        """Of what it makes."""
        return self.weight.outer // (2 if self.act else 1)


def find_layers(linears: Sequence[Linear], graph: ir.Graph) -> list[Layer]:
    """The layers that linear ones make, each as large as it can be; a gated one stands for both that it is made of."""
    plain = [_with_norm(_scaled(_biased(_plain(linear)))) for linear in linears]
    by_out = {layer.out: layer for layer in plain}
    gated: list[Layer] = []
    parts: set[ir.Value] = set()
    for node in graph:
        if node.op_type == "Mul" and (found := _gated(node, by_out)) is not None:
            layer, pair = found
            gated.append(layer)
            parts |= {one.out for one in pair}
    return gated + [_added(layer) for layer in plain if layer.out not in parts]


def _plain(linear: Linear) -> Layer:
    node, bias = linear.node, linear.bias
    read = None if bias is None else (lambda: _floats(bias))
    return Layer(linear.name, linear.x, linear.weight, node.outputs[0], node, node, bias=read)


def _biased(layer: Layer) -> Layer:
    """With the constant that is added behind it."""
    node = _only_use(layer.out, "Add")
    if node is None or layer.bias is not None:
        return layer
    other = _other(node, layer.out)
    tensor = ir.convenience.get_const_tensor(other) if other is not None else None
    if tensor is None or dimensions(tensor) != [layer.weight.outer]:
        return layer
    return replace(layer, out=node.outputs[0], last=node, bias=lambda: _floats(other))


def _scaled(layer: Layer) -> Layer:
    """With the factor behind it."""
    node = _only_use(layer.out, "Mul")
    factor = scalar(_other(node, layer.out)) if node is not None else None
    if node is None or factor is None:
        return layer
    return replace(layer, out=node.outputs[0], last=node, alpha=factor)


def _added(layer: Layer) -> Layer:
    """With the residual that it is added to."""
    node = _only_use(layer.out, "Add")
    other = _other(node, layer.out) if node is not None else None
    if node is None or other is None or ir.convenience.get_const_tensor(other) is not None or other is layer.out:
        return layer
    return replace(layer, out=node.outputs[0], last=node, residual=other)


def _with_norm(layer: Layer) -> Layer:
    """With the norm before it."""
    node = layer.x.producer()
    if node is None or node.op_type not in ("SimplifiedLayerNormalization", "LayerNormalization"):
        return layer
    source, weight, *bias = node.inputs
    axis = node.attributes["axis"].as_int() if "axis" in node.attributes else -1
    constant = weight is None or ir.convenience.get_const_tensor(weight) is not None
    if source is None or axis not in (-1, 2) or not constant or any(value is not None for value in bias):
        return layer
    epsilon = node.attributes["epsilon"].as_float() if "epsilon" in node.attributes else 1e-5
    norm = Norm(epsilon, weight, centred=node.op_type == "LayerNormalization")
    return replace(layer, x=source, norm=norm)


def _gated(node: ir.Node, layers: dict[ir.Value, Layer]) -> tuple[Layer, tuple[Layer, Layer]] | None:
    """The gated layer whose last product a node is, and the two that it is made of."""
    for activated, value in (node.inputs, reversed(node.inputs)):
        up = layers.get(value) if value is not None else None
        found = _activation(activated, layers) if activated is not None else None
        if up is None or found is None or _only_use(up.out, "Mul") is not node:
            continue
        gate, act = found
        alike = gate.x is up.x and gate.norm == up.norm and gate.weight.outer == up.weight.outer
        if not alike or gate.alpha != 1 or up.alpha != 1 or gate.weight.outer % GATED or gate is up:
            continue
        weight = Gates(gate.weight, up.weight)
        name = f"{gate.name} {up.name}"
        layer = replace(gate, name=name, weight=weight, out=node.outputs[0], last=node, act=act, bias=_biases(gate, up))
        return layer, (gate, up)
    return None


def _activation(value: ir.Value, layers: dict[ir.Value, Layer]) -> tuple[Layer, int] | None:
    """The gates that an activation is made of, where nothing else reads them, and which one it is."""
    node = value.producer()
    if node is None or not node.inputs or len(value.uses()) != 1:
        return None
    if node.op_type == "Mul":
        for one, other in (node.inputs, reversed(node.inputs)):
            sigmoid = other.producer() if other is not None else None
            gate = layers.get(one) if one is not None else None
            if gate is None or sigmoid is None or sigmoid.op_type != "Sigmoid" or sigmoid.inputs[0] is not one:
                continue
            if len(gate.out.uses()) == 2:
                return gate, SILU
        return None
    gate = layers.get(node.inputs[0]) if node.inputs[0] is not None else None
    act = _named(node)
    return (gate, act) if gate is not None and act and len(gate.out.uses()) == 1 else None


def _named(node: ir.Node) -> int:
    """Which activation a node of its own is; 0 for none that is known."""
    if node.op_type == "Gelu" and "approximate" in node.attributes:
        return GELU if node.attributes["approximate"].as_string() == "tanh" else 0
    if node.op_type == "FastGelu" and len(node.inputs) == 1:
        return GELU
    if node.op_type in ("QuickGelu", "Swish"):  # x * sigmoid(alpha * x)
        default = 1.702 if node.op_type == "QuickGelu" else 1.0
        alpha = node.attributes["alpha"].as_float() if "alpha" in node.attributes else default
        return SILU if alpha == 1 else 0
    return 0


def _biases(gate: Layer, up: Layer) -> Callable[[], Floats] | None:
    if gate.bias is None and up.bias is None:
        return None

    def read() -> Floats:
        one, other = (
            np.zeros(layer.weight.outer, np.float32) if layer.bias is None else layer.bias() for layer in (gate, up)
        )
        return np.asarray(interleaved(one, other), np.float32)

    return read


def _only_use(value: ir.Value, op: str) -> ir.Node | None:
    """The node of that kind which alone reads a value."""
    uses = tuple(value.uses())
    if len(uses) != 1 or value.is_graph_output() or uses[0].node.op_type != op:
        return None
    return uses[0].node


def _other(node: ir.Node, value: ir.Value) -> ir.Value | None:
    """The other of a node's two inputs."""
    one, other = node.inputs
    return other if one is value else one


def _floats(value: ir.Value | None) -> Floats:
    return np.asarray(array(value), np.float32).reshape(-1)
