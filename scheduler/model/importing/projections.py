"""Query, key and value projections of one input become one layer, so that its rows are rounded and read once.

Most graphs have them as one already. Knows layers and our attention node; not how layers are computed.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace

import numpy as np
import onnx_ir as ir

from scheduler.model.importing.blocks import Floats
from scheduler.model.importing.interface import DOMAIN
from scheduler.model.importing.layers import Layer
from scheduler.model.importing.stored import Joined

_COLUMNS = ("q_at", "k_at", "v_at")


def join_projections(graph: ir.Graph, layers: Sequence[Layer]) -> list[Layer]:
    """The layers, of which those that make an attention's query, key and value apart are one; nodes read that one."""
    by_out = {layer.out: layer for layer in layers}
    for node in graph:
        if node.op_type == "Attention" and node.domain == DOMAIN:
            parts = [by_out.get(value) for value in node.inputs[:3] if value is not None]
            known = [part for part in parts if part is not None]
            if len(known) == 3 and _alike(known):
                for part in known:
                    del by_out[part.out]
                joined = _joined(known)
                by_out[joined.out] = joined
                _read(node, known)
    return list(by_out.values())


def _alike(parts: Sequence[Layer]) -> bool:
    """Whether three layers are three, of one input, which nothing but the attention reads."""
    first = parts[0]
    same = all((part.x, part.norm, part.alpha) == (first.x, first.norm, first.alpha) for part in parts)
    plain = all(not part.act and part.residual is None and len(part.out.uses()) == 1 for part in parts)
    return same and plain and all(part.weight.quantised == first.weight.quantised for part in parts)


def _joined(parts: Sequence[Layer]) -> Layer:
    name, weight = " ".join(part.name for part in parts), Joined([part.weight for part in parts])
    return replace(parts[0], name=name, weight=weight, bias=_biases(parts))


def _biases(parts: Sequence[Layer]) -> Callable[[], Floats] | None:
    if all(part.bias is None for part in parts):
        return None

    def read() -> Floats:
        return np.concatenate(
            [np.zeros(part.weight.outer, np.float32) if part.bias is None else part.bias() for part in parts]
        )

    return read


def _read(node: ir.Node, parts: Sequence[Layer]) -> None:
    """Let the node find all three in what makes the first, behind one another."""
    start = 0
    for place, (name, part) in enumerate(zip(_COLUMNS, parts, strict=True)):
        node.replace_input_with(place, parts[0].out)
        node.attributes[name] = ir.AttrInt64(name, start + node.attributes[name].as_int())
        start += part.weight.outer
