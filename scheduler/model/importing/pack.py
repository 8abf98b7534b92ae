"""The pack pass: a logical graph becomes one that runs the tokens of many requests in one step.

Every linear layer sees all tokens of a step as rows of one packed sequence, [1, T, hidden]. Only attention needs to
know whose rows they are. It runs twice a layer, for two groups of KV slots: `decode`, one query token a slot, and
`prefill`, a chunk of tokens a slot, right-padded to the longest chunk S. Two groups, because a decode row that ran in
the kernel of a chunk would differ in its last bits.

This is the contract with whoever feeds the graph. T packed rows, R sampled rows, V vocabulary, i a layer, g a group:

    input_ids               int64 [1, T]            the step's tokens
    unpad                   int64 [T]               where each packed row lies among the padded rows: the decode group's
                                                    B (S = 1), then the prefill group's B * S, flattened
    logit_rows              int64 [R]               packed rows whose logits are wanted
    {g}_rows                int64 [B * S]           the packed row in each padded place (any row where it is padding)
    {g}_shape               int64 [3]               value [B, S, -1]
    {g}_total               int32 []                upper bound of the tokens in any slot after the step, at least S
    {g}_seqlens_k           int32 [B]               tokens in each slot after the step, minus one
    {g}_query_seqlens       int32 [B]               valid tokens of each slot's chunk; 0 leaves the slot alone
    {g}_past.{i}.key/value  float32 [B, kv_heads, C, head_size]     a slot holds C tokens, and past + S <= C
    -> logits               float32 [1, R, V]
    -> {g}_present.{i}.key/value                    as the past, to be bound to the same memory

A group without requests is fed one idle slot. Positions come from `seqlens_k`. The pass knows no requests, no sources
and nothing of how linear layers are computed.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from scheduler.model.importing.errors import UnsupportedModel

GROUPS = ("decode", "prefill")
ATTENTION = "GroupQueryAttention"
MICROSOFT = "com.microsoft"

_PAST_KEY, _PAST_VALUE, _SEQLENS_K, _TOTAL, _QUERY_SEQLENS = 3, 4, 5, 6, 16
HEADS = {"MatMul", "MatMulNBits"}
ROWWISE = {"Add", "Cast", "Clip", "Div", "Identity", "Mul", "Sub", "Tanh"}


@dataclass(frozen=True, slots=True)
class _Group:
    """The graph inputs one attention group shares over all layers."""

    name: str
    rows: ir.Value
    shape: ir.Value
    total: ir.Value
    seqlens_k: ir.Value
    query_seqlens: ir.Value

    @classmethod
    def declare(cls, name: str) -> "_Group":
        """Make the group's inputs. Its dimensions are its own: equal names promise onnxruntime equal sizes."""
        return cls(
            name=name,
            rows=_value(f"{name}_rows", ir.DataType.INT64, [f"{name}_BS"]),
            shape=_value(f"{name}_shape", ir.DataType.INT64, [3]),
            total=_value(f"{name}_total", ir.DataType.INT32, []),
            seqlens_k=_value(f"{name}_seqlens_k", ir.DataType.INT32, [f"{name}_B"]),
            query_seqlens=_value(f"{name}_query_seqlens", ir.DataType.INT32, [f"{name}_B"]),
        )

    def inputs(self) -> list[ir.Value]:
        return [self.rows, self.shape, self.total, self.seqlens_k, self.query_seqlens]

    def cache(self, kind: str, layer: int, side: str, kv_heads: int, head_size: int) -> ir.Value:
        shape: list[str | int] = [f"{self.name}_B", kv_heads, f"{self.name}_C", head_size]
        return _value(f"{self.name}_{kind}.{layer}.{side}", ir.DataType.FLOAT, shape)


def attentions(graph: ir.Graph) -> list[ir.Node]:
    """List the attention nodes, in graph order: one a layer."""
    return [node for node in graph if node.op_type == ATTENTION and node.domain == MICROSOFT]


def pack(model: ir.Model, head_size: int) -> None:
    """Rewrite a logical graph in place to the interface above.

    Args:
        model: A graph with inputs `input_ids`, `attention_mask` and pasts, whose `logits` are its first output.
        head_size: Elements of one attention head.

    Raises:
        UnsupportedModel: The graph does something else with its attention mask, or its head cannot be found.

    """
    graph = model.graph
    ids, logits = graph.inputs[0], graph.outputs[0]
    unpad = _value("unpad", ir.DataType.INT64, ["T"])
    logit_rows = _value("logit_rows", ir.DataType.INT64, ["R"])
    groups = [_Group.declare(name) for name in GROUPS]
    flat = ir.Value(
        name="packed.flat", const_value=ir.tensor(np.array([1, -1, 0], np.int64))
    )  # [B, S, D] -> [1, BS, D]
    graph.register_initializer(flat)

    pasts, presents = list[ir.Value](), list[ir.Value]()
    graph.outputs[:] = [logits]
    _select_rows(graph, _head(logits), logit_rows)
    for layer, node in enumerate(attentions(graph)):
        twice = [_attend(graph, node, group, layer, head_size) for group in groups]
        for attention in twice:
            pasts += [past for past in attention.inputs[_PAST_KEY : _PAST_VALUE + 1] if past is not None]
            presents += attention.outputs[1:]
        _join(graph, node, twice, flat, unpad)

    dropped = graph.inputs[1:]
    ids.shape = ir.Shape([1, "T"])
    graph.inputs[:] = [ids, unpad, logit_rows, *(value for group in groups for value in group.inputs()), *pasts]
    graph.outputs.extend(presents)
    RemoveUnusedNodesPass()(model)
    _check_gone(dropped)
    _forget_shapes(graph, logits)


def _value(name: str, dtype: ir.DataType, shape: Sequence[int | str]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))


def _append(
    graph: ir.Graph, before: ir.Node, op: str, inputs: list[ir.Value], name: str, **attributes: int
) -> ir.Value:
    """Place a new node with one output, both of that name, before another."""
    node = ir.node(op, inputs, attributes=attributes, outputs=[ir.Value(name=name)], name=name)
    graph.insert_before(before, node)
    return node.outputs[0]


def _attend(graph: ir.Graph, node: ir.Node, group: _Group, layer: int, head_size: int) -> ir.Node:
    """Copy an attention node to serve one group: its rows padded to [B, S, D], its slots, its lengths.

    A window-sized cache is not kept: slots hold the whole context, and `local_window_size` still masks.
    """
    name = f"packed.{layer}.{group.name}"
    inputs: list[ir.Value | None] = [*node.inputs, *[None] * (_QUERY_SEQLENS + 1 - len(node.inputs))]
    for position, value in enumerate(inputs[:3]):  # query, key, value; or all three packed in the first
        if value is not None:
            rows = _append(graph, node, "Gather", [value, group.rows], f"{name}.rows.{position}", axis=1)
            inputs[position] = _append(graph, node, "Reshape", [rows, group.shape], f"{name}.padded.{position}")
    heads = node.attributes["kv_num_heads"].as_int()
    key, value = (group.cache("past", layer, side, heads, head_size) for side in ("key", "value"))
    inputs[_PAST_KEY], inputs[_PAST_VALUE] = key, value
    inputs[_SEQLENS_K], inputs[_TOTAL] = group.seqlens_k, group.total
    inputs[_QUERY_SEQLENS] = group.query_seqlens
    presents = [group.cache("present", layer, side, heads, head_size) for side in ("key", "value")]
    attributes = [attribute for attribute in node.attributes.values() if attribute.name != "sliding_window_cache"]
    outputs = [ir.Value(name=f"{name}.attention"), *presents]
    copy = ir.Node(MICROSOFT, ATTENTION, inputs, attributes, outputs=outputs, name=name)
    graph.insert_before(node, copy)
    return copy


def _join(graph: ir.Graph, node: ir.Node, twice: list[ir.Node], flat: ir.Value, unpad: ir.Value) -> None:
    """Put the groups' outputs, packed again, in the place of an attention node."""
    flattened = [_append(graph, node, "Reshape", [one.outputs[0], flat], f"{one.name}.flat") for one in twice]
    joined = _append(graph, node, "Concat", flattened, f"{twice[0].name}.joined", axis=1)
    packed = _append(graph, node, "Gather", [joined, unpad], f"{twice[0].name}.packed", axis=1)
    ir.convenience.replace_all_uses_with(node.outputs[0], packed)
    graph.remove(node, safe=True)


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
    """Let only the sampled rows reach the head."""
    hidden = head.inputs[0]
    assert hidden is not None
    head.replace_input_with(0, _append(graph, head, "Gather", [hidden, logit_rows], "packed.sampled", axis=1))


def _check_gone(dropped: Sequence[ir.Value]) -> None:
    """Whatever still reads a dropped input depends on a padded batch, which is no more."""
    for value in dropped:
        for usage in value.uses():
            message = f"{usage.node.op_type} ({usage.node.name}) reads the input {value.name}"
            raise UnsupportedModel(f"{message} for more than attention lengths: this graph cannot be packed")


def _forget_shapes(graph: ir.Graph, logits: ir.Value) -> None:
    """Drop what was said of inner shapes: it told of [batch, sequence], and no longer holds."""
    vocabulary = logits.shape[-1] if logits.shape is not None else "V"
    for node in graph:
        for value in node.outputs:
            if not value.is_graph_output():
                value.shape = value.type = None
    logits.shape = ir.Shape([1, "R", vocabulary])
