"""A folder of onnxruntime-genai for the peers that need one: the model of a GGUF file as published CPU models are.

Every linear layer becomes MatMulNBits: int4 in blocks of 32 along the inputs, one scale a block, activations quantised
to int8 by the kernel (accuracy level 4). The graph is the one that the import starts from, before any of its passes.
"""

import json
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnx_ir as ir
from onnx_ir.passes.common import RemoveUnusedNodesPass

from scheduler.model.importing.gguf_source import read_gguf
from scheduler.model.importing.logical import dimensions
from scheduler.model.importing.made import check_replaceable
from scheduler.model.importing.progress import Progress
from scheduler.model.importing.target import locked, write_folder

BLOCK = 32
LEVELS = 8  # int4 is -8..7, stored from 0 with the zero at 8
CONFIG = "genai_config.json"
_BLOCK_OF_ROWS = 4096  # output channels quantised at a time: bounds the temporary arrays
_INLINE = 256  # bytes; smaller tensors stay in the graph


def genai_folder(gguf: Path, folder: Path, progress: Progress) -> Path:
    """Make the folder, unless it is there already."""
    with locked(folder, progress):
        if not (folder / CONFIG).is_file():
            progress.start("write an int4 folder for onnxruntime-genai", None)
            write_folder(folder, lambda work: _fill(gguf, work), check_replaceable)
            progress.done()
    return folder


def _fill(gguf: Path, work: Path) -> None:
    logical = read_gguf(gguf, None)
    quantise(logical.model)
    for name, text in logical.texts.items():
        (work / name).write_text(text, encoding="utf-8")
    (work / CONFIG).write_text(json.dumps(logical.config, indent=4), encoding="utf-8")
    ir.save(logical.model, work / "model.onnx", external_data="model.onnx.data", size_threshold_bytes=_INLINE)


def quantise(model: ir.Model) -> None:
    """Rewrite every MatMul with a constant weight, in place."""
    graph = model.graph
    for node in [node for node in graph if node.op_type == "MatMul"]:
        x, weight = node.inputs
        if x is None or weight is None or weight.const_value is None:
            continue
        tensor = weight.const_value
        inner, outer = dimensions(tensor)
        blocks = -(-inner // BLOCK)
        values = _lazy(graph, f"{weight.name}_Q4", tensor, ir.DataType.UINT8, (outer, blocks, BLOCK // 2))
        scales = _lazy(graph, f"{weight.name}_scales", tensor, ir.DataType.FLOAT, (outer * blocks,))
        sizes = {"K": inner, "N": outer, "bits": 4, "block_size": BLOCK, "accuracy_level": 4}
        made = ir.node(
            "MatMulNBits",
            [x, values, scales],
            domain="com.microsoft",
            attributes=sizes,
            outputs=[ir.Value()],
            name=f"{node.name}_Q4",
        )
        graph.insert_before(node, made)
        ir.convenience.replace_nodes_and_values(graph, node, [node], [], node.outputs, made.outputs)
    RemoveUnusedNodesPass()(model)


def int4(weight: npt.NDArray[np.float32]) -> tuple[npt.NDArray[np.uint8], npt.NDArray[np.float32]]:
    """Round a weight [in, out] to int4: bytes of two values [out, blocks, 16], low one first; scales [out * blocks].

    A block's scale brings its largest magnitude to -8, so the error of each element is at most half of the scale,
    or the whole of it for elements that would be 8.
    """
    inner, outer = weight.shape
    blocks = -(-inner // BLOCK)
    values, scales = np.empty((outer, blocks, BLOCK // 2), np.uint8), np.empty((outer, blocks), np.float32)
    for start in range(0, outer, _BLOCK_OF_ROWS):
        rows = weight[:, start : start + _BLOCK_OF_ROWS].T
        padded = np.pad(rows, ((0, 0), (0, blocks * BLOCK - inner))).reshape(len(rows), blocks, BLOCK)
        largest = np.take_along_axis(padded, np.abs(padded).argmax(-1, keepdims=True), -1)
        scale = np.where(largest == 0, 1, largest / -LEVELS).astype(np.float32)
        quantised = (np.clip(np.rint(padded / scale), -LEVELS, LEVELS - 1) + LEVELS).astype(np.uint8)
        values[start : start + len(rows)] = quantised[..., 0::2] | quantised[..., 1::2] << 4
        scales[start : start + len(rows)] = scale[..., 0]
    return values, scales.reshape(-1)


def _lazy(
    graph: ir.Graph, name: str, weight: ir.TensorProtocol, dtype: ir.DataType, sizes: tuple[int, ...]
) -> ir.Value:
    """An initializer that is made of the float weight when it is written."""
    part = 0 if dtype == ir.DataType.UINT8 else 1
    shape = ir.Shape(sizes)
    tensor = ir.LazyTensor(lambda: ir.Tensor(int4(weight.numpy())[part]), dtype, shape, name=name)
    value = ir.Value(name=name, const_value=tensor, shape=shape, type=ir.TensorType(dtype))
    graph.register_initializer(value)
    return value
