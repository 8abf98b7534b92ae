"""The norm pass: sums with a norm become an Add and a norm of its own, which the linear layers take over.

Knows onnxruntime's SkipSimplifiedLayerNormalization; not who reads what it gives.
"""

import onnx_ir as ir

from scheduler.model.importing.interface import replace

_SUM = 3  # the output that holds the sum


def split_skip_norms(graph: ir.Graph) -> None:
    """Rewrite every sum with a norm, in place."""
    for node in graph:
        if node.op_type == "SkipSimplifiedLayerNormalization":
            _split(graph, node)


def _split(graph: ir.Graph, node: ir.Node) -> None:
    residual, delta, weight, *more = node.inputs
    assert residual is not None
    assert delta is not None
    if more and more[0] is not None:
        delta = _op(graph, node, "Add", [delta, more[0]], f"{node.name}.biased")
    total = _op(graph, node, "Add", [residual, delta], f"{node.name}.sum")
    attributes = {"axis": -1, "epsilon": node.attributes["epsilon"].as_float(), "stash_type": 1}
    normed = _op(graph, node, "SimplifiedLayerNormalization", [total, weight], f"{node.name}.norm", attributes)
    replace(graph, node.outputs[0], normed)
    if len(node.outputs) > _SUM:
        replace(graph, node.outputs[_SUM], total)
    graph.remove(node, safe=True)


def _op(
    graph: ir.Graph,
    before: ir.Node,
    op: str,
    inputs: list[ir.Value | None],
    name: str,
    attributes: dict[str, int | float] | None = None,
) -> ir.Value:
    node = ir.node(op, inputs, attributes=attributes, outputs=[ir.Value(name=name)], name=name)
    graph.insert_before(before, node)
    return node.outputs[0]
