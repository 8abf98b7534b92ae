"""The linear pass: linear layers and embeddings become operators that read the file of weights.

Which form a weight takes is decided elsewhere; a layer without one stays what it was. Knows layers and the file.
"""

from collections.abc import Iterator
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from scheduler.model.importing.blocks import ROUNDED, Form, rounded
from scheduler.model.importing.embedding import Embedding
from scheduler.model.importing.interface import DOMAIN, Inputs, replace, rows_of
from scheduler.model.importing.layers import Layer
from scheduler.model.importing.panels import (
    INT8_ZERO,
    PANEL,
    block_panels,
    block_panels_size,
    int8_panels,
    int8_panels_size,
    int8_scales_at,
    pack_blocks,
    padded,
)
from scheduler.model.importing.stored import Stored
from scheduler.model.importing.weight_file import WeightFile
from scheduler.model.importing.weights import array

Attributes = dict[str, Any]
Kept = Literal["keep", "int8"]
"""As the blocks that a weight is stored in, or as int8 with one scale an output."""


class LinearPass:
    """Replaces the nodes of layers by one operator each.

    Attributes:
        replaced: what stands for the values that are no more, which layers found earlier still name.
    """

    def __init__(self, graph: ir.Graph, inputs: Inputs, file: WeightFile, choice: Kept) -> None:
        self._graph, self._inputs, self._file, self._choice = graph, inputs, file, choice
        self.replaced: dict[ir.Value, ir.Value] = {}

    def rewrite(self, layer: Layer, *, head: bool) -> None:
        """Rewrite a layer; of the head only the wanted rows are computed."""
        attributes = place_weight(self._file, layer.weight, layer.name, self._choice) | self._more(layer)
        op, ins = "Linear", [self._now(layer.x), self._inputs.weights]
        if layer.residual is not None:
            op, ins = "LinearAdd", [*ins, self._now(layer.residual)]
        elif head:
            op, ins = "LinearPick", [*ins, self._inputs.logit_rows]
        out = rows_of(f"{layer.name}.rows", layer.width, "R" if head else "T")
        name = f"{layer.matmul.name}.{op}"
        node = ir.node(op, ins, attributes=attributes, domain=DOMAIN, outputs=[out], name=name)
        self._graph.insert_before(layer.last, node)
        replace(self._graph, layer.out, out)
        self.replaced[layer.out] = out

    def _now(self, value: ir.Value) -> ir.Value:
        return self.replaced.get(value, value)

    def _more(self, layer: Layer) -> Attributes:
        """What comes before and behind the product."""
        found: Attributes = {"act": layer.act, "alpha": layer.alpha}
        if (read := layer.bias) is not None:
            outer = layer.weight.outer
            found["bias_at"] = self._file.floats(padded(outer, PANEL), lambda: np.pad(read(), (0, -outer % PANEL)))
        if (norm := layer.norm) is not None:
            found |= {"norm": 2 if norm.centred else 1, "epsilon": norm.epsilon}
            if (weight := norm.weight) is not None:
                found["norm_at"] = self._file.floats(layer.weight.inner, lambda: array(weight), weight.name)
        return found


def rewrite_embedding(graph: ir.Graph, found: Embedding, inputs: Inputs, file: WeightFile) -> None:
    """Let an embedding read the file of weights: what its head has there already, else its own, if it is quantised."""
    kinds: tuple[Kept, ...] = ("int8", "keep")
    placed = next((kind for kind in kinds if file.has((found.name, kind))), None)
    if placed is None and not found.table.quantised:
        return
    attributes = place_weight(file, found.table, found.name, placed or "keep")
    out = rows_of(f"{found.node.name}.rows", found.table.inner)
    ins = [found.ids, inputs.weights]
    node = ir.node("Embed", ins, attributes=attributes, domain=DOMAIN, outputs=[out], name=found.node.name)
    graph.insert_before(found.node, node)
    replace(graph, found.node.outputs[0], out)


def place_weight(file: WeightFile, weight: Stored, name: str, choice: Kept) -> Attributes:
    """Reserve a weight's place; the attributes that tell an operator of it."""
    sizes = {"k": weight.inner, "n": weight.outer}
    if choice == "int8":
        size = int8_panels_size(weight.outer, weight.inner)
        place = file.add(size, lambda: int8_panels(weight), (name, choice))
        scales = place + int8_scales_at(weight.outer, weight.inner)
        return {"form": 0, **sizes, "w_at": place, "scale_at": scales, "zero": INT8_ZERO}
    form = weight.form or ROUNDED
    size = block_panels_size(weight.outer, weight.inner, form)
    kept = block_panels if weight.form is not None else _rounded_panels
    place = file.add(size, lambda: kept(weight, form), (name, choice))
    kind = 1 if form.bits == 4 else 2
    more = {"zero": form.zero, "half": int(form.half), "minimum": int(form.minimum)}
    return {"form": kind, **sizes, "w_at": place, **more}


def _rounded_panels(weight: Stored, form: Form) -> Iterator[npt.NDArray[np.uint8]]:
    """A weight that has no blocks of 32, rounded to such."""
    for start in range(0, weight.outer, 32 * PANEL):
        stop = min(start + 32 * PANEL, weight.outer)
        yield pack_blocks(rounded(weight.floats(start, stop)), form)
