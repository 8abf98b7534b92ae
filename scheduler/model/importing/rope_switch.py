"""Resolves the `If` by which a longrope graph picks its rotary tables for the total length of a run.

Tables must not change under a running request: keys already in the cache were rotated by the ones before. So the choice
is made once, by the context that will be served. Knows only this pattern: If(total length > original), whose branches
are constants.
"""

import onnx_ir as ir

from scheduler.model.importing.errors import UnsupportedModel
from scheduler.model.importing.logical import RopeSwitch, dimensions


def resolve_rope_switch(graph: ir.Graph, context: int) -> RopeSwitch | None:
    """Replace the `If` by the tables that a context of that many tokens needs, in place.

    Returns:
        What was chosen, or None where there was nothing to choose.

    Raises:
        UnsupportedModel: The graph branches on something else.

    """
    switches = [node for node in graph if node.op_type == "If"]
    if not switches:
        return None
    if len(switches) > 1:
        raise _refused(switches[1])
    original = _original_context(switches[0])
    chosen = RopeSwitch(original=original, chosen="long" if context > original else "short")
    _inline(graph, switches[0], "then_branch" if chosen.chosen == "long" else "else_branch")
    return chosen


def _original_context(node: ir.Node) -> int:
    condition = node.inputs[0].producer() if node.inputs[0] is not None else None
    if condition is None or condition.op_type != "Greater" or condition.inputs[1] is None:
        raise _refused(node)
    bound = ir.convenience.get_const_tensor(condition.inputs[1])
    if bound is None or bound.size != 1:
        raise _refused(node)
    return int(bound.numpy().item())


def _inline(graph: ir.Graph, node: ir.Node, branch: str) -> None:
    tables = node.attributes[branch].as_graph().outputs
    for old, table in zip(tuple(node.outputs), tables, strict=True):
        tensor = ir.convenience.get_const_tensor(table)
        if tensor is None:
            raise _refused(node)
        kind, shape = ir.TensorType(tensor.dtype), ir.Shape(dimensions(tensor))
        new = ir.Value(name=f"rope.{old.name}", const_value=tensor, shape=shape, type=kind)
        graph.register_initializer(new)
        ir.convenience.replace_all_uses_with(old, new)
    graph.remove(node, safe=True)


def _refused(node: ir.Node) -> UnsupportedModel:
    message = f"the graph branches at {node.op_type} ({node.name}), which does not just pick rotary tables by length"
    return UnsupportedModel(f"{message}: only longrope's choice can be made at import")
