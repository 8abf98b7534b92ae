"""The attention pass: GroupQueryAttention becomes attention over pages, with what leads to it.

Splits of packed projections, norms of query and key heads, rotary tables, windows, soft caps and sinks become part of
the node. Knows onnxruntime's attention and ours.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import onnx_ir as ir

from scheduler.model.importing.errors import UnsupportedModel
from scheduler.model.importing.interface import DOMAIN, Inputs, replace, rows_of
from scheduler.model.importing.logical import dimensions
from scheduler.model.importing.manifest import KvCache
from scheduler.model.importing.weight_file import WeightFile
from scheduler.model.importing.weights import MICROSOFT, array

ATTENTION = "GroupQueryAttention"
KINDS: dict[KvCache, int] = {"float32": 0, "float16": 1, "int8": 2}
"""How a node names what the cache is made of."""

MOST_HEAD = 512
"""Channels of a head, at the most."""

_COS, _SIN, _SINKS = 7, 8, 11


def attentions(graph: ir.Graph) -> list[ir.Node]:
    """List the attention nodes, in graph order: one a layer."""
    return [node for node in graph if node.op_type == ATTENTION and node.domain == MICROSOFT]


@dataclass(frozen=True, slots=True)
class _Operand:
    """Query, key or value heads: columns of a value from `column` on, and the norm that they pass."""

    value: ir.Value
    column: int = 0
    norm: ir.Value | None = None
    epsilon: float = 0.0


def rewrite_attention(graph: ir.Graph, inputs: Inputs, file: WeightFile, head_size: int, cache: KvCache) -> None:
    """Rewrite every attention node of a logical graph, in place.

    Raises:
        UnsupportedModel: A node has something that the operator does not; names it.
    """
    nodes = attentions(graph)
    for layer, node in enumerate(nodes):
        attributes = {"layer": layer, "layers": len(nodes), "head_size": head_size, "kind": KINDS[cache]}
        _rewrite(graph, node, inputs, file, attributes)


def _rewrite(graph: ir.Graph, node: ir.Node, inputs: Inputs, file: WeightFile, attributes: dict[str, Any]) -> None:
    size = attributes["head_size"]
    heads, kv_heads = _whole(node, "num_heads"), _whole(node, "kv_num_heads")
    if size > MOST_HEAD:
        raise UnsupportedModel(f"{node.op_type} ({node.name}) has heads of {size} channels: {MOST_HEAD} are the most")
    q, k, v = _operands(node, heads, kv_heads, size)
    attributes |= {"heads": heads, "kv_heads": kv_heads, "q_at": q.column, "k_at": k.column, "v_at": v.column}
    attributes |= {"scale": _real(node, "scale") or size**-0.5, "softcap": _real(node, "softcap")}
    attributes |= _window(node) | _rotary(node, file) | _sinks(node, file, heads) | _norms(q, k, file, size)
    out = rows_of(f"{node.name}.attended", heads * size)
    ours = ir.node(
        "Attention",
        [q.value, k.value, v.value, inputs.slots, inputs.positions, inputs.tables, inputs.weights, inputs.cache],
        attributes=attributes,
        domain=DOMAIN,
        outputs=[out],
        name=node.name,
    )
    graph.insert_before(node, ours)
    replace(graph, node.outputs[0], out)


def _operands(node: ir.Node, heads: int, kv_heads: int, size: int) -> tuple[_Operand, _Operand, _Operand]:
    first, *others = (value for value in node.inputs[:3] if value is not None)
    if not others:
        return (
            _Operand(first),
            _Operand(first, heads * size),
            _Operand(first, (heads + kv_heads) * size),
        )
    q, k, v = (_operand(value, size) for value in (first, *others))
    return q, k, v


def _operand(value: ir.Value, size: int) -> _Operand:
    norm, epsilon = None, 0.0
    if (found := _normed(value, size)) is not None:
        value, norm, epsilon = found
    source, column = _split(value)
    return _Operand(source, column, norm, epsilon)


def _normed(value: ir.Value, size: int) -> tuple[ir.Value, ir.Value, float] | None:
    """What lies before Reshape, a norm of each head and Reshape; the norm's weight and epsilon."""
    chain = _chain(value, ("Reshape", "SimplifiedLayerNormalization", "Reshape"))
    if chain is None:
        return None
    _, norm, inner = chain
    weight, source = norm.inputs[1], inner.inputs[0]
    tensor = ir.convenience.get_const_tensor(weight) if weight is not None else None
    if tensor is None or source is None or weight is None or dimensions(tensor) != [size]:
        return None
    return source, weight, _real(norm, "epsilon") or 1e-5


def _chain(value: ir.Value, kinds: tuple[str, ...]) -> list[ir.Node] | None:
    """The nodes of these kinds behind one another that make a value, the last one first."""
    found = []
    for kind in kinds:
        node = value.producer()
        if node is None or node.op_type != kind or node.inputs[0] is None:
            return None
        found.append(node)
        value = node.inputs[0]
    return found


def _split(value: ir.Value) -> tuple[ir.Value, int]:
    """The value that a Split on the last axis cuts, and the first column of the part; or the value itself."""
    node = value.producer()
    if node is None or node.op_type != "Split" or node.inputs[0] is None or len(node.inputs) < 2:
        return value, 0
    sizes = ir.convenience.get_const_tensor(node.inputs[1]) if node.inputs[1] is not None else None
    if sizes is None or "axis" not in node.attributes or node.attributes["axis"].as_int() not in (-1, 2):
        return value, 0
    place = list(node.outputs).index(value)
    return node.inputs[0], int(sizes.numpy()[:place].sum())


def _window(node: ir.Node) -> dict[str, int]:
    """`local_window_size` counts the tokens that are seen, the row's own included."""
    size = _whole(node, "local_window_size", -1)
    return {"window": size} if size > 0 else {}


def _rotary(node: ir.Node, file: WeightFile) -> dict[str, int]:
    if not _whole(node, "do_rotary", 0):
        return {}
    cos, sin = (node.inputs[place] for place in (_COS, _SIN))
    tensor = ir.convenience.get_const_tensor(cos) if cos is not None else None
    if tensor is None or sin is None or cos is None:
        raise UnsupportedModel(f"{node.op_type} ({node.name}) has no constant rotary tables")
    rows, half = dimensions(tensor)
    count = rows * half
    return {
        "rotary": 2 * half,
        "interleaved": _whole(node, "rotary_interleaved", 0),
        "table_rows": rows,
        "cos_at": file.floats(count, lambda: array(cos), cos.name),
        "sin_at": file.floats(count, lambda: array(sin), sin.name),
    }


def _sinks(node: ir.Node, file: WeightFile, heads: int) -> dict[str, int]:
    value = node.inputs[_SINKS] if len(node.inputs) > _SINKS else None
    if value is not None:
        return {"sinks_at": file.floats(heads, lambda: array(value), value.name)}
    if _whole(node, "smooth_softmax", 0) > 0:  # a sink whose score is 0
        return {"sinks_at": file.floats(heads, lambda: np.zeros(heads), f"{heads} sinks")}
    return {}


def _norms(q: _Operand, k: _Operand, file: WeightFile, size: int) -> dict[str, float]:
    found: dict[str, float] = {}
    for name, operand in (("q_norm_at", q), ("k_norm_at", k)):
        if (weight := operand.norm) is not None:
            found[name] = file.floats(size, partial(array, weight), weight.name)
            found["norm_epsilon"] = operand.epsilon
    return found


def _whole(node: ir.Node, name: str, otherwise: int = 0) -> int:
    return node.attributes[name].as_int() if name in node.attributes else otherwise


def _real(node: ir.Node, name: str) -> float:
    return node.attributes[name].as_float() if name in node.attributes else 0.0
