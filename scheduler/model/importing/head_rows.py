"""Gives a graph that keeps the last position's logits alone the logits of every position again.

The builder's `prune_lm_head` lets one row reach the head: Gather(axis=1, -1), then Unsqueeze. Other exporters cut a
Slice out, or select behind the head. The packed form selects rows of its own, so what selects them here is taken out.
Knows nothing of what the graph is packed to.
"""

import onnx_ir as ir

from scheduler.model.importing.pack import HEADS, ROWWISE

_INT_MAX = 2**31 - 1


def keep_every_row(graph: ir.Graph, name: str) -> bool:
    """Take out, in place, what keeps the last row alone on the way to the output of that name; whether there was any.

    A graph whose head is built otherwise is left as it is; packing refuses it with its node.
    """
    logits = next((value for value in graph.outputs if value.name == name), None)
    if logits is None:
        return False
    path = _selecting(logits)
    if not any(_selects_last(node) for node in path):
        return False
    for node in path:
        _take_out(graph, node)
    (logits,) = (value for value in graph.outputs if value.name == name)
    width = logits.shape[-1] if logits.shape is not None else "V"
    logits.shape = ir.Shape(["batch_size", "sequence_length", width])
    return True


def _selecting(logits: ir.Value) -> list[ir.Node]:
    """List what selects or reshapes rows around the head: before it without a gap, behind it among what rescales."""
    found, headed, value = list[ir.Node](), False, logits
    while (node := value.producer()) is not None:
        inner = [v for v in node.inputs if v is not None and ir.convenience.get_const_tensor(v) is None]
        if _selects_last(node) or _adds_or_drops_rows_axis(node):
            found.append(node)
        elif node.op_type in HEADS and not headed:
            headed = True
        elif headed or node.op_type not in ROWWISE or len(inner) != 1:
            break
        if not inner:
            break
        value = inner[0]
    return found if headed else []


def _selects_last(node: ir.Node) -> bool:
    """Whether the node keeps the last of axis 1."""
    if node.op_type == "Gather" and "axis" in node.attributes:
        return node.attributes["axis"].as_int() == 1 and _constant(node, 1) == [-1]
    if node.op_type == "Slice" and len(node.inputs) > 3:
        starts, ends, axes = (_constant(node, position) for position in (1, 2, 3))
        steps = _constant(node, 4) if len(node.inputs) > 4 else [1]
        return starts == [-1] and axes in ([1], [-2]) and steps == [1] and ends is not None and ends[0] >= _INT_MAX
    return False


def _adds_or_drops_rows_axis(node: ir.Node) -> bool:
    return node.op_type in ("Squeeze", "Unsqueeze") and _constant(node, 1) == [1]


def _constant(node: ir.Node, position: int) -> list[int] | None:
    value = node.inputs[position] if position < len(node.inputs) else None
    tensor = ir.convenience.get_const_tensor(value) if value is not None else None
    return None if tensor is None else [int(number) for number in tensor.numpy().ravel()]


def _take_out(graph: ir.Graph, node: ir.Node) -> None:
    """Let the node's readers read what it reads; where it makes an output, its maker takes the output's name over."""
    source, made = node.inputs[0], node.outputs[0]
    assert source is not None
    output = made.is_graph_output()
    name, type_, shape = made.name, made.type, made.shape
    ir.convenience.replace_all_uses_with(made, source, replace_graph_outputs=output)
    graph.remove(node, safe=True)
    if output:
        source.name, source.type, source.shape = name, type_, shape
