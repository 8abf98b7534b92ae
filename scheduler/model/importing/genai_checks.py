"""What of onnxruntime-genai's graphs can be packed, and the refusals of the rest.

Reads nodes and inputs of the logical graph; knows nothing of files.
"""

from collections.abc import Sequence
from typing import Any

import onnx_ir as ir

from scheduler.model.importing.attention_pass import attentions
from scheduler.model.importing.errors import UnsupportedModel

_ATTENTION_OPS = {
    "Attention",
    "DecoderMaskedMultiHeadAttention",
    "DecoderMaskedSelfAttention",
    "LinearAttention",
    "MultiHeadAttention",
    "PackedAttention",
    "PackedMultiHeadAttention",
    "PagedAttention",
    "SparseAttention",
}
_RECURRENT_OPS = {"CausalConvWithState", "GRU", "LSTM", "Loop", "RNN", "Scan"}
_REFUSED_INPUTS = (  # part of the name, what it tells of
    ("position_ids", "positions as an input, where the attention's own rotary embedding is needed"),
    ("inputs_embeds", "embeddings as an input, as models for images or audio do"),
    ("pixel", "an image input"),
    ("image", "an image input"),
    ("audio", "an audio input"),
    ("encoder", "an encoder"),
    ("cross", "an encoder"),
    ("conv", "recurrent state"),
    ("recurrent", "recurrent state"),
    ("state", "recurrent state"),
)
_REFUSED_SLOTS = (  # inputs of GroupQueryAttention that follow the padded batch, or a cache this engine has not
    (9, "positions as an input (position_ids)"),
    (10, "an attention bias (attention_bias)"),
    (12, "a quantised cache (k_scale)"),
    (13, "a quantised cache (v_scale)"),
    (16, "packed rows already (query_seqlens)"),
)
_PAST = (3, 4)


def check_graph(graph: ir.Graph) -> None:
    """See that attention is GroupQueryAttention over float32 caches, one past a layer, and nothing else has state.

    Raises:
        UnsupportedModel: Otherwise; names the node.

    """
    for node in graph:
        if node.op_type in _ATTENTION_OPS:
            raise _refused(f"{node.op_type} ({node.name}) is another attention than GroupQueryAttention")
        if node.op_type in _RECURRENT_OPS:
            raise _refused(f"{node.op_type} ({node.name}) keeps state from token to token")
    nodes = attentions(graph)
    if not nodes:
        raise _refused("there is no GroupQueryAttention in the graph")
    seen = set[ir.Value]()
    for node in nodes:
        _check_attention(node, seen)


def order_interface(graph: ir.Graph, decoder: dict[str, Any]) -> None:
    """Put `input_ids` and `logits` first, in place, and see that the rest is the mask, the pasts and the presents.

    Raises:
        UnsupportedModel: There is an input or output of another kind; names it.

    """
    named_in, named_out = decoder.get("inputs", {}), decoder.get("outputs", {})
    ids = _named(graph.inputs, named_in.get("input_ids", "input_ids"))
    logits = _named(graph.outputs, named_out.get("logits", "logits"))
    mask = named_in.get("attention_mask", "attention_mask")
    pasts = {value for node in attentions(graph) for value in node.inputs[_PAST[0] : _PAST[1] + 1]}
    for value in graph.inputs:
        if value is not ids and value.name != mask and value not in pasts:
            raise _refused(f"the graph's input {value.name} means {_meaning(value.name or '')}")
    if ids.dtype != ir.DataType.INT64:
        raise _refused(f"the graph's input {ids.name} is {ids.dtype}, not INT64")
    if logits.dtype != ir.DataType.FLOAT:
        raise _refused(f"the graph's output {logits.name} is {logits.dtype}, not FLOAT")
    if logits.shape is None or logits.shape[1] == 1:
        raise _refused(f"the graph's output {logits.name} holds one position alone")
    ids.name, logits.name = "input_ids", "logits"
    graph.inputs[:] = [ids, *(value for value in graph.inputs if value is not ids)]
    graph.outputs[:] = [logits, *(value for value in graph.outputs if value is not logits)]


def _check_attention(node: ir.Node, seen: set[ir.Value]) -> None:
    """One attention node: its inputs, and a cache of its own."""
    for position, meaning in _REFUSED_SLOTS:
        if position < len(node.inputs) and node.inputs[position] is not None:
            raise _refused(f"{node.op_type} ({node.name}) has {meaning}")
    if "causal" in node.attributes and node.attributes["causal"].as_int() == 0:
        raise _refused(f"{node.op_type} ({node.name}) looks ahead (causal=0)")
    for position in _PAST:
        past = node.inputs[position]
        if past is None or not past.is_graph_input() or past in seen:
            raise _refused(f"{node.op_type} ({node.name}) has no cache of its own")
        if past.dtype != ir.DataType.FLOAT:
            raise _refused(f"{node.op_type} ({node.name}) has a cache {past.name} of {past.dtype}, not FLOAT")
        seen.add(past)
    for present in node.outputs[1:]:
        if present.uses():
            raise _refused(f"{node.op_type} ({node.name}) has a cache {present.name} that other nodes read")


def _named(values: Sequence[ir.Value], name: str) -> ir.Value:
    for value in values:
        if value.name == name:
            return value
    raise _refused(f"the graph has no {name}, only {', '.join(sorted(str(value.name) for value in values)[:4])}")


def _meaning(name: str) -> str:
    return next((meaning for part, meaning in _REFUSED_INPUTS if part in name), "something this engine does not know")


def _refused(reason: str) -> UnsupportedModel:
    return UnsupportedModel(f"{reason}. Export the model with onnxruntime-genai's builder for text on a CPU (-e cpu)")
