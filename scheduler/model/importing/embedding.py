"""Embeddings whose tables need not be floats: stored in blocks, or tied to a head. Knows the builder's patterns."""

from collections.abc import Mapping
from dataclasses import dataclass

import onnx_ir as ir

from scheduler.model.importing.logical import dimensions
from scheduler.model.importing.stored import Stored
from scheduler.model.importing.weights import MICROSOFT, NBits, dense


@dataclass(frozen=True, slots=True, eq=False)
class Embedding:
    """A node that gives rows of a table by token ids; `name` is the table's, which a tied head has too."""

    node: ir.Node
    name: str
    table: Stored
    ids: ir.Value


def embeddings(graph: ir.Graph, stored: Mapping[str, Stored]) -> list[Embedding]:
    """The embeddings of a graph, but for tables of floats that no head can share."""
    ids = graph.inputs[0]
    found = [_gathered(node, stored) or _transposed(node) or _quantised(node) for node in graph if ids in node.inputs]
    return [one for one in found if one is not None]


def _gathered(node: ir.Node, stored: Mapping[str, Stored]) -> Embedding | None:
    """A Gather of a table that the source gives by name."""
    if node.op_type != "Gather":
        return None
    table, ids = node.inputs
    if table is None or ids is None or str(table.name) not in stored:
        return None
    weight = stored[str(table.name)]
    tied = [name for name, other in stored.items() if other is weight][-1]  # the head comes last
    return Embedding(node, tied, weight, ids)


def _transposed(node: ir.Node) -> Embedding | None:
    """A Gather of the head's weight, turned."""
    table, ids = node.inputs[:2]
    turn = table.producer() if table is not None and node.op_type == "Gather" else None
    if turn is None or ids is None or turn.op_type != "Transpose" or turn.inputs[0] is None:
        return None
    tensor = turn.inputs[0].const_value
    if tensor is None or tensor.dtype != ir.DataType.FLOAT or len(dimensions(tensor)) != 2:
        return None
    return Embedding(node, str(tensor.name), dense(turn.inputs[0], tensor), ids)


def _quantised(node: ir.Node) -> Embedding | None:
    """A GatherBlockQuantized along the rows of a table, whose bytes may be the head's, reshaped."""
    if node.op_type != "GatherBlockQuantized" or node.domain != MICROSOFT:
        return None
    numbers, ids, scales, *zeros = node.inputs
    bits, block, rows, inputs = (_whole(node, name) for name in ("bits", "block_size", "gather_axis", "quantize_axis"))
    source = numbers
    if numbers is not None and (reshape := numbers.producer()) is not None and reshape.op_type == "Reshape":
        source = reshape.inputs[0]
    tensor = ir.convenience.get_const_tensor(scales) if scales is not None else None
    data = ir.convenience.get_const_tensor(source) if source is not None else None
    known = tensor is not None and data is not None and data.dtype == ir.DataType.UINT8
    if not known or tensor is None or source is None or ids is None or (rows, inputs, bits) not in _KNOWN:
        return None
    outer, groups = dimensions(tensor)[0], tensor.size // dimensions(tensor)[0]
    sizes = {"N": outer, "K": groups * block, "bits": bits, "block_size": block}
    table = NBits((None, source, scales, zeros[0] if zeros else None), sizes)
    return Embedding(node, str(source.name), table, ids)


_KNOWN = {(0, 1, 4), (0, 1, 8)}


def _whole(node: ir.Node, name: str) -> int:
    return node.attributes[name].as_int() if name in node.attributes else 0
