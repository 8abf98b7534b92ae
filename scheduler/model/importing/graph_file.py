"""Writes a graph and, beside it, its weights, which are computed one by one as they are written.

Knows no model and no folder's layout beyond those two files.
"""

from pathlib import Path

import onnx_ir as ir

from scheduler.model.importing.progress import Progress

DATA = "model.onnx.data"
_INLINE = 256  # bytes; smaller tensors stay in the graph


def save(model: ir.Model, path: Path, label: str, progress: Progress) -> None:
    """Write a graph to a path and its weights to DATA beside it; each weight is told of."""
    tensors = [value.const_value for value in model.graph.initializers.values()]
    progress.start(label, sum(tensor is not None and tensor.nbytes > _INLINE for tensor in tensors))
    ir.save(
        model,
        path,
        external_data=DATA,
        size_threshold_bytes=_INLINE,
        callback=lambda _tensor, _info: progress.advance(1),
    )
    progress.done()
