"""The smoothing pass: moves scale from activations, where 8 bits are tight, into weights, where they are not.

An input channel is divided by s and its weights multiplied by it, which changes nothing but what quantisation loses
(Xiao et al., "SmoothQuant", 2023). The division is free at run time because it is folded into what makes the input:

    a norm          its weight is divided by s
    attention       the value projection's output channels are, one s for all query heads that share a key-value head

A gated product, act(gate) * up, could be divided through the up projection as well. It is left alone: its outliers come
with single tokens, not with channels, so dividing channels bought nothing for one limb (mean KL 0.020 and 0.017 with it
and without it on SmolLM2-135M) and cost twice the KL for two, by coarser weights.

    s[k] = largest |x[., k]| ** alpha / largest |w[k, .]| ** (1 - alpha)

with alpha chosen per group of layers, from a grid, by the error that is left on calibration rows.

Knows graphs and linear layers; not where the calibration rows come from.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import cast

import numpy as np
import onnx_ir as ir

from scheduler.model.importing.linear import quantise
from scheduler.model.importing.logical import dimensions
from scheduler.model.importing.pack import ATTENTION
from scheduler.model.importing.progress import Progress
from scheduler.model.importing.weights import Floats, Linear

ALPHAS = (0.0, 0.4, 0.5, 0.6, 0.7, 0.8)
"""The grid; 0 leaves a group as it is."""

_NORMS = {"SimplifiedLayerNormalization": 1, "SkipSimplifiedLayerNormalization": 2}
_FLOOR = 1e-5


@dataclass(slots=True, eq=False)
class Group:
    """Linear layers that read one input, and what can be divided in their stead.

    Attributes:
        norm: makes the input, with a weight of its own; or None.
        columns: the layer whose output channels [start, start + inner / shared) make the input; or None.
        heads: (key-value heads, query heads a key-value head) where attention lies between; (1, 1) otherwise.
    """

    x: ir.Value
    layers: list[Linear]
    norm: ir.Node | None = None
    columns: Linear | None = None
    start: int = 0
    heads: tuple[int, int] = (1, 1)

    @property
    def name(self) -> str:
        """The input's name, by which calibration rows are found."""
        return str(self.x.name)

    @property
    def foldable(self) -> bool:
        """Whether the input can be divided without a cost at run time."""
        return self.norm is not None or self.columns is not None

    def tied(self, scale: Floats) -> Floats:
        """The scale with query heads that share a key-value head given the same, their largest."""
        heads, shared = self.heads
        per_head = scale.reshape(heads, shared, -1)
        largest: Floats = np.repeat(per_head.max(axis=1, keepdims=True), shared, axis=1).ravel()
        return largest

    @property
    def only_layers_read(self) -> bool:
        """Whether nobody but these layers reads the input."""
        nodes = {layer.node for layer in self.layers}
        return all(use.node in nodes for use in self.x.uses()) and not self.x.is_graph_output()

    def apply(self, scale: Floats) -> None:
        """Divide the input by the scale [inner] and multiply the layers' weights by it."""
        for layer in self.layers:
            layer.in_scale = scale
        self.divide(scale)

    def divide(self, scale: Floats) -> None:
        """Divide the input by the scale [inner], in what makes it."""
        if self.norm is not None:
            _divide_norm(self.norm, scale)
        elif self.columns is not None:
            heads, shared = self.heads
            own = scale.reshape(heads, shared, -1)[:, 0].ravel()
            out = self.columns.out_scale
            out = np.ones(self.columns.outer, np.float32) if out is None else out.copy()
            out[self.start : self.start + len(own)] = own
            self.columns.out_scale = out


def groups(layers: Sequence[Linear]) -> list[Group]:
    """The layers by their inputs, in graph order, each with what its scale can be folded into."""
    by_input: dict[ir.Value, list[Linear]] = {}
    for layer in layers:
        by_input.setdefault(layer.x, []).append(layer)
    makers = {layer.node: layer for layer in layers}
    return [_group(x, readers, makers) for x, readers in by_input.items()]


def smooth(found: Sequence[Group], rows: Mapping[str, Floats], progress: Progress) -> int:
    """Choose and apply a scale for every group that can be folded and has calibration rows [count, inner].

    Returns:
        How many groups were changed.

    """
    progress.start("smooth activations", len(found))
    changed = 0
    for group in found:
        if group.foldable and group.name in rows:
            scale = _best(group, rows[group.name])
            if scale is not None:
                group.apply(scale)
                changed += 1
        progress.advance(1)
    progress.done()
    return changed


def _best(group: Group, x: Floats) -> Floats | None:
    """The scale of the grid that leaves the least error in the layers' outputs on the rows; None for no scale."""
    weights = [layer.read() for layer in group.layers]
    wanted = [x @ weight for weight in weights]
    largest = np.maximum(np.abs(x).max(axis=0), _FLOOR)
    steepest = np.maximum(np.max([np.abs(weight).max(axis=1) for weight in weights], axis=0), _FLOOR)
    best, least = None, np.inf
    for alpha in ALPHAS:
        scale = None if alpha == 0 else group.tied(_scale(largest, steepest, alpha))
        error = sum(_error(x, weight, y, scale) for weight, y in zip(weights, wanted, strict=True))
        if error < least:
            best, least = scale, error
    return best


def _scale(largest: Floats, steepest: Floats, alpha: float) -> Floats:
    scale = largest**alpha / steepest ** (1 - alpha)
    return cast("Floats", np.maximum(scale / np.exp(np.log(scale).mean()), _FLOOR).astype(np.float32))


def _error(x: Floats, weight: Floats, wanted: Floats, scale: Floats | None) -> float:
    """What quantising rows and weights costs, relative to the output, as mean squares."""
    if scale is not None:
        x, weight = x / scale, weight * scale[:, None]
    step = np.maximum(np.abs(x).max(axis=1, keepdims=True), _FLOOR) / 127
    values, scales = quantise(weight)
    y = (np.rint(x / step) * step) @ (values.astype(np.float32) * scales)
    return float(((y - wanted) ** 2).mean() / max(float((wanted**2).mean()), 1e-30))


def _group(x: ir.Value, readers: list[Linear], makers: Mapping[ir.Node, Linear]) -> Group:
    group = Group(x, readers)
    node = x.producer()
    if node is None or not group.only_layers_read:
        return group  # somebody else would see the division
    group.norm = _norm(x)
    if group.norm is None and node.op_type == "Gather":
        _see_attention(group, node, makers)
    return group


def _norm(x: ir.Value) -> ir.Node | None:
    """The norm with a weight that makes x, whole or the rows of it that are sampled."""
    node = x.producer()
    if node is not None and node.op_type == "Gather":
        source = node.inputs[0]
        return _norm(source) if source is not None and len(source.uses()) == 1 else None
    if node is None or node.op_type not in _NORMS or x is not node.outputs[0]:
        return None
    return node if _constant(node.inputs[_NORMS[node.op_type]]) else None


def _see_attention(group: Group, packed: ir.Node, makers: Mapping[ir.Node, Linear]) -> None:
    """Follow an attention's output back to the value projection, where there is one without a bias."""
    attention = _upstream(packed, ("Gather", "Concat", "Reshape"), ATTENTION)
    if attention is None:
        return
    separate = len(attention.inputs) > 2 and attention.inputs[2] is not None
    value = attention.inputs[2 if separate else 0]
    source = value.producer() if value is not None else None
    maker = _upstream(source, ("Reshape", "Gather"), None) if source is not None else None
    layer = makers.get(maker) if maker is not None else None
    if layer is None or layer.bias is not None:
        return
    heads = attention.attributes["kv_num_heads"].as_int()
    shared = attention.attributes["num_heads"].as_int() // heads
    width = group.layers[0].inner // shared
    group.columns, group.start, group.heads = layer, layer.outer - width, (heads, shared)


def _upstream(node: ir.Node, through: Sequence[str], wanted: str | None) -> ir.Node | None:
    """The first node before this one that is of another type than `through`, if it is of the wanted type."""
    current: ir.Node | None = node
    while current is not None and current.op_type in through:
        first = current.inputs[0]
        current = first.producer() if first is not None else None
    return current if current is not None and wanted in (None, current.op_type) else None


def _constant(value: ir.Value | None) -> bool:
    return value is not None and value.const_value is not None


def _divide_norm(norm: ir.Node, scale: Floats) -> None:
    """Give the norm a weight of its own, divided by the scale."""
    position = _NORMS[norm.op_type]
    value = cast("ir.Value", norm.inputs[position])
    tensor = cast("ir.TensorProtocol", value.const_value)
    name = f"{value.name}.smoothed.{norm.name}"

    def make() -> ir.TensorProtocol:
        return ir.Tensor(np.asarray(tensor.numpy(), np.float32) / scale, name=name)

    shape = ir.Shape(dimensions(tensor))
    lazy = ir.LazyTensor(make, ir.DataType.FLOAT, shape, name=name)
    smoothed = ir.Value(name=name, const_value=lazy, shape=shape, type=ir.TensorType(ir.DataType.FLOAT))
    graph = norm.graph
    assert graph is not None
    graph.register_initializer(smoothed)
    norm.replace_input_with(position, smoothed)
