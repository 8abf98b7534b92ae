"""The pack pass: a logical graph becomes one that runs the tokens of many requests in one step.

Every layer sees all tokens of a step as rows, [1, T, hidden]; only attention needs to know whose they are, and finds
keys and values by block tables. What the operators do not have stays what it is, as long as it computes rows one by
one. The inputs and outputs are told in `interface`. Knows the order of the passes.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from scheduler.model.importing.attention_pass import rewrite_attention
from scheduler.model.importing.embedding import embeddings
from scheduler.model.importing.errors import UnsupportedModel
from scheduler.model.importing.interface import DOMAIN, Inputs, declared
from scheduler.model.importing.layers import Layer, find_layers
from scheduler.model.importing.linear_pass import Kept, LinearPass, rewrite_embedding
from scheduler.model.importing.manifest import KvCache
from scheduler.model.importing.norm_pass import split_skip_norms
from scheduler.model.importing.projections import join_projections
from scheduler.model.importing.stored import Stored
from scheduler.model.importing.weight_file import WeightFile
from scheduler.model.importing.weights import linears

HEADS = {"MatMul", "MatMulNBits"}
ROWWISE = {"Add", "Cast", "Clip", "Div", "Identity", "Mul", "Sub", "Tanh"}

MOST_CANDIDATES = 128
"""Likeliest tokens that the operator tells of each row."""


@dataclass(frozen=True, slots=True)
class Packed:
    """What packing a graph made.

    Attributes:
        file: the places of all weights that the operators read, yet to be written.
        fused: linear layers that are operators of ours.
        left: linear layers with constant weights that are not.
    """

    file: WeightFile
    fused: int
    left: int


def pack(model: ir.Model, head_size: int, stored: Mapping[str, Stored], weights: Kept | None, cache: KvCache) -> Packed:
    """Rewrite a logical graph in place.

    Args:
        model: A graph with inputs `input_ids`, `attention_mask` and pasts, whose `logits` are its first output.
        head_size: Elements of one attention head.
        stored: Weights as the source stores them, by name, where it says.
        weights: How linear layers keep them; None leaves all layers what they are.
        cache: What keys and values are kept as.

    Raises:
        UnsupportedModel: The graph does something else with its attention mask, or its head cannot be found.

    """
    graph = model.graph
    ids, logits = graph.inputs[0], graph.outputs[0]
    inputs, file = Inputs.declare(), WeightFile()
    dropped = graph.inputs[1:]
    graph.outputs[:] = [logits]
    graph.opset_imports[DOMAIN] = 1
    _forget_shapes(graph)
    head = _head(logits)
    rewrite_attention(graph, inputs, file, head_size, cache)
    split_skip_norms(graph)
    RemoveUnusedNodesPass()(model)  # what nobody reads any more shall keep no layer from being found
    if weights is None:
        _select_rows(graph, head, inputs.logit_rows)
    else:
        _rewrite_matrices(graph, head, inputs, file, stored, weights)
    _candidates(graph, inputs)
    ids.shape = ir.Shape([1, "T"])
    graph.inputs[:] = [ids, *inputs.all()]
    RemoveUnusedNodesPass()(model)
    _check_gone(dropped)
    fused = sum(node.domain == DOMAIN and node.op_type.startswith("Linear") for node in graph)
    return Packed(file, fused, sum(1 for _ in linears(graph, stored)))


def _rewrite_matrices(
    graph: ir.Graph, head: ir.Node, inputs: Inputs, file: WeightFile, stored: Mapping[str, Stored], weights: Kept
) -> None:
    """Linear layers and embeddings, as far as they are what the operators do."""
    found = find_layers(list(linears(graph, stored)), graph)
    layers = join_projections(graph, [layer for layer in found if _suits(layer, weights)])
    if not any(layer.matmul is head for layer in layers):
        _select_rows(graph, head, inputs.logit_rows)
    rewriter = LinearPass(graph, inputs, file, weights)
    for layer in layers:
        rewriter.rewrite(layer, head=layer.matmul is head)
    for embedding in embeddings(graph, stored):
        rewrite_embedding(graph, embedding, inputs, file)


def _suits(layer: Layer, weights: Kept) -> bool:
    """Whether a layer becomes one of ours: what a source stores as floats is kept as that."""
    return weights == "int8" or layer.weight.quantised


def _candidates(graph: ir.Graph, inputs: Inputs) -> None:
    """The likeliest tokens of each row, at the graph's end."""
    logits = graph.outputs[0]
    vocabulary = logits.shape[-1] if logits.shape is not None else "V"
    logits.shape = ir.Shape([1, "R", vocabulary])
    count: int | str = min(vocabulary, MOST_CANDIDATES) if isinstance(vocabulary, int) else "C"
    outputs = [
        declared("top_ids", ir.DataType.INT32, ["R", count]),
        declared("top_values", ir.DataType.FLOAT, ["R", count]),
        declared("mass", ir.DataType.FLOAT, ["R"]),
    ]
    graph.append(
        ir.node("Candidates", [logits, inputs.temperatures], domain=DOMAIN, outputs=outputs, name="candidates")
    )
    graph.outputs.extend(outputs)


def _head(logits: ir.Value) -> ir.Node:
    """Find the matmul that makes the logits, walking back through what only rescales its rows."""
    value = logits
    while (node := value.producer()) is not None:
        if node.op_type in HEADS:
            return node
        inner = [v for v in node.inputs if v is not None and ir.convenience.get_const_tensor(v) is None]
        if node.op_type not in ROWWISE or len(inner) != 1:
            message = f"the logits pass through {node.op_type} ({node.name}), behind which no MatMul is looked for"
            raise UnsupportedModel(f"{message}: export the model with a plain language-model head")
        value = inner[0]
    raise UnsupportedModel(f"the logits come from {value.name}, not from a MatMul: export a plain language-model head")


def _select_rows(graph: ir.Graph, head: ir.Node, logit_rows: ir.Value) -> None:
    """Let only the wanted rows reach a head that stays what it is."""
    hidden = head.inputs[0]
    assert hidden is not None
    name = "packed.wanted"
    gather = ir.node("Gather", [hidden, logit_rows], attributes={"axis": 1}, outputs=[ir.Value(name=name)], name=name)
    graph.insert_before(head, gather)
    head.replace_input_with(0, gather.outputs[0])


def _check_gone(dropped: Sequence[ir.Value]) -> None:
    """Whatever still reads a dropped input depends on a padded batch, which is no more."""
    for value in dropped:
        for usage in value.uses():
            message = f"{usage.node.op_type} ({usage.node.name}) reads the input {value.name}"
            raise UnsupportedModel(f"{message} for more than attention lengths: this graph cannot be packed")


def _forget_shapes(graph: ir.Graph) -> None:
    """Drop what was said of inner shapes: it told of [batch, sequence], and no longer holds."""
    for node in graph:
        for value in node.outputs:
            if not value.is_graph_output():
                value.shape = value.type = None
