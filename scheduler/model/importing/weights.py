"""The constant weights of linear layers as float32 [in, out], whatever they are stored as; read when asked for.

Knows MatMul and MatMulNBits of onnxruntime-genai's builder; not what becomes of the weights.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from scheduler.model.importing.logical import dimensions

Floats = npt.NDArray[np.float32]
Indices = npt.NDArray[np.int64]
MICROSOFT = "com.microsoft"
_NBITS_BIAS = 5


@dataclass(slots=True, eq=False)
class Linear:
    """A linear layer y = x @ weight (+ bias) of a graph.

    Passes move scale between layers and copy channels without changing what the layers compute together: the weight
    that is read is `in_scale[:, None] * weight / out_scale`, for an input divided by `in_scale`, with the rows of
    `copies` once more at its end, for an input with those channels copied, and the columns of `out_copies`.

    Attributes:
        node: the MatMul or MatMulNBits.
        name: the weight's, unique in the graph.
        inner: input width.
        outer: output width.
        stored: reads the weight as the source has it, [inner, outer].
        x: the input [1, T, inner].
        bias: inside the node, where it has one; one added by a node of its own is not seen here.
        in_scale: float32 [inner] or None.
        out_scale: float32 [outer] or None.
        copies: int64, input channels that come once more at the input's end; or None.
        copied: whether the copies must be made here; else the input has them already.
        out_copies: int64, output channels that are given once more; or None.
        limbs: 1 for 8-bit activations, 2 for 16-bit ones.
    """

    node: ir.Node
    name: str
    inner: int
    outer: int
    stored: Callable[[], Floats]
    x: ir.Value
    bias: ir.Value | None = None
    in_scale: Floats | None = None
    out_scale: Floats | None = None
    copies: Indices | None = None
    copied: bool = True
    out_copies: Indices | None = None
    limbs: int = 1

    @property
    def shape(self) -> tuple[int, int]:
        """Of what `read` gives."""
        extra = 0 if self.copies is None else len(self.copies)
        return self.inner + extra, self.outer + (0 if self.out_copies is None else len(self.out_copies))

    def read(self) -> Floats:
        """The weight with its scales and copies, float32 of `shape`."""
        weight = np.asarray(self.stored(), np.float32)
        if self.in_scale is not None:
            weight = weight * self.in_scale[:, None]
        if self.out_scale is not None:
            weight = weight / self.out_scale
        if self.copies is not None:
            weight = np.concatenate([weight, weight[self.copies]])
        if self.out_copies is not None:
            weight = np.concatenate([weight, weight[:, self.out_copies]], axis=1)
        return weight


def linears(graph: ir.Graph) -> Iterator[Linear]:
    """The linear layers with constant weights, in graph order."""
    for node in graph:
        if node.op_type == "MatMul" and node.domain == "":
            x, weight = node.inputs
            tensor = weight.const_value if weight is not None else None
            if x is not None and tensor is not None and _is_matrix(tensor):
                inner, outer = dimensions(tensor)
                yield Linear(node, str(tensor.name), inner, outer, partial(_array, weight), x)
        elif node.op_type == "MatMulNBits" and node.domain == MICROSOFT and _readable(node):
            x, weight, *_ = inputs = tuple(node.inputs)
            assert x is not None
            assert weight is not None
            attributes = {name: node.attributes[name].as_int() for name in ("K", "N", "bits", "block_size")}
            stored = partial(_dequantised, inputs, attributes)
            bias = inputs[_NBITS_BIAS] if len(inputs) > _NBITS_BIAS else None
            yield Linear(node, str(weight.name), attributes["K"], attributes["N"], stored, x, bias)


def _is_matrix(tensor: ir.TensorProtocol) -> bool:
    return tensor.dtype == ir.DataType.FLOAT and len(dimensions(tensor)) == 2


def _readable(node: ir.Node) -> bool:
    """Whether the node's packing is one that is understood here: 4 or 8 bits, groups in order."""
    shuffled = len(node.inputs) > 4 and node.inputs[4] is not None
    return node.attributes["bits"].as_int() in (4, 8) and not shuffled


def _dequantised(inputs: Sequence[ir.Value | None], attributes: Mapping[str, int]) -> Floats:
    """The weight of a MatMulNBits: groups of `block_size` inputs, each with a scale and a zero point."""
    bits, block, inner, outer = (attributes[name] for name in ("bits", "block_size", "K", "N"))
    blocks = -(-inner // block)
    values = _unpacked(_array(inputs[1]).reshape(outer, blocks, -1), bits)
    scales = np.asarray(_array(inputs[2]), np.float32).reshape(outer, blocks, 1)
    zeros: Floats | np.float32 = np.float32(1 << (bits - 1))
    if len(inputs) > 3 and inputs[3] is not None:
        packed = _array(inputs[3])
        if packed.dtype == np.uint8:
            packed = _unpacked(packed.reshape(outer, -1), bits)[:, :blocks]
        zeros = packed.astype(np.float32).reshape(outer, blocks, 1)
    weight = (values.astype(np.float32) - zeros) * scales
    return weight.reshape(outer, blocks * block)[:, :inner].T


def _unpacked(packed: npt.NDArray[Any], bits: int) -> npt.NDArray[np.uint8]:
    """Bytes to values along the last axis, the low half of each byte first."""
    bytes_ = np.asarray(packed, np.uint8)
    if bits == 8:
        return bytes_
    return np.stack([bytes_ & 15, bytes_ >> 4], axis=-1).reshape(*bytes_.shape[:-1], -1)


def detach(graph: ir.Graph) -> None:
    """Make every constant that lies in a file of the source one that can be written elsewhere, read when it is."""
    for value in graph.initializers.values():
        tensor = value.const_value
        if isinstance(tensor, ir.ExternalTensor):
            value.const_value = ir.LazyTensor(
                partial(_loaded, tensor), tensor.dtype, ir.Shape(dimensions(tensor)), name=tensor.name
            )


def _loaded(tensor: ir.ExternalTensor) -> ir.TensorProtocol:
    return ir.Tensor(_mapped(tensor), dtype=tensor.dtype, name=tensor.name)


def _mapped(tensor: ir.ExternalTensor) -> npt.NDArray[Any]:
    """A constant in its file. onnx_ir reads no file with a second hard link, and packed folders have such files."""
    shape = tuple(dimensions(tensor))
    return np.memmap(tensor.path, tensor.dtype.numpy(), "r", tensor.offset or 0, shape)


def _array(value: ir.Value | None) -> npt.NDArray[Any]:
    tensor = value.const_value if value is not None else None
    assert tensor is not None, "a linear layer's weight is constant"
    return _mapped(tensor) if isinstance(tensor, ir.ExternalTensor) else tensor.numpy()
