"""The precision a model is served in: what the options and the source make of it.

Every choice comes with a sentence that says why. Knows no passes.
"""

from collections.abc import Sequence

import msgspec
import numpy as np
import onnx_ir as ir

from scheduler.model.importing.linear_pass import Kept
from scheduler.model.importing.logical import LogicalModel
from scheduler.model.importing.manifest import ImportOptions, KvCache, Weights
from scheduler.model.importing.weights import Linear, linears


class Precision(msgspec.Struct, frozen=True):
    """What a model is served in; `reasons` has a sentence for each choice."""

    weights: Weights
    kv_cache: KvCache
    reasons: list[str]

    @property
    def kept(self) -> Kept | None:
        """What the operators make of linear layers; None leaves them as they are."""
        return "int8" if self.weights == "int8" else "keep" if self.weights == "keep" else None


def decide(logical: LogicalModel, options: ImportOptions) -> Precision:
    """Settle what the options leave open."""
    layers = list(linears(logical.model.graph, logical.stored))
    weights, why_weights = _weights(options, layers)
    cache, why_cache = _cache(options)
    return Precision(weights, cache, [why_weights, why_cache])


def _weights(options: ImportOptions, layers: Sequence[Linear]) -> tuple[Weights, str]:
    if options.weights != "auto":
        return options.weights, f"Weights {options.weights}, as asked."
    if not layers:
        return "keep", "Weights kept: no linear layer of this model is one that is understood."
    if any(layer.weight.quantised for layer in layers):
        return "keep", "Weights kept: the source's own blocks lose least and are read fastest."
    return "int8", "Weights int8: a quarter of the floats that the source has."


def _cache(options: ImportOptions) -> tuple[KvCache, str]:
    if options.kv_cache != "auto":
        return options.kv_cache, f"KV cache {options.kv_cache}, as asked."
    return "float16", "KV cache float16: half the memory of float32, and nothing that can be seen is lost."


def restore_floats(model: ir.Model, logical: LogicalModel) -> None:
    """Make every linear layer a MatMul of float32, in place: what the other forms are measured by."""
    for layer in list(linears(model.graph, logical.stored)):
        _restore(model.graph, layer)


def _restore(graph: ir.Graph, layer: Linear) -> None:
    weight = layer.weight
    shape, name = ir.Shape([weight.inner, weight.outer]), f"{layer.name}.float"

    def read() -> ir.TensorProtocol:
        return ir.Tensor(np.ascontiguousarray(weight.floats(0, weight.outer).T), name=name)

    tensor = ir.LazyTensor(read, ir.DataType.FLOAT, shape, name=name)
    value = ir.Value(name=name, const_value=tensor, shape=shape, type=ir.TensorType(ir.DataType.FLOAT))
    graph.register_initializer(value)
    product = _op(graph, layer.node, "MatMul", [layer.x, value], f"{layer.name}.product")
    if layer.bias is not None:
        product = _op(graph, layer.node, "Add", [product, layer.bias], f"{layer.name}.biased")
    ir.convenience.replace_nodes_and_values(graph, layer.node, [layer.node], [], layer.node.outputs, [product])


def _op(graph: ir.Graph, before: ir.Node, op: str, inputs: list[ir.Value], name: str) -> ir.Value:
    node = ir.node(op, inputs, outputs=[ir.Value(name=name)], name=name)
    graph.insert_before(before, node)
    return node.outputs[0]
