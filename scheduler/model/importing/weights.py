"""The linear layers of a graph and their constant weights, whatever they are stored as; read when asked for.

Knows MatMul and MatMulNBits of onnxruntime-genai's builder; not what becomes of the weights.
"""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property, partial
from typing import Any

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from scheduler.model.importing.blocks import BLOCK, Blocks, Floats, Form, fits_half
from scheduler.model.importing.logical import dimensions
from scheduler.model.importing.stored import Dense, Stored

MICROSOFT = "com.microsoft"
_NBITS_BIAS = 5


@dataclass(frozen=True, slots=True, eq=False)
class Linear:
    """A linear layer y = x @ weight (+ bias) of a graph.

    Attributes:
        node: the MatMul or MatMulNBits.
        name: the weight's, unique in the graph.
        weight: as it is stored, [out, in].
        x: the input [1, T, in].
        bias: inside the node, where it has one; one added by a node of its own is not seen here.
    """

    node: ir.Node
    name: str
    weight: Stored
    x: ir.Value
    bias: ir.Value | None = None


def linears(graph: ir.Graph, stored: Mapping[str, Stored]) -> Iterator[Linear]:
    """The linear layers with constant weights, in graph order; `stored` are weights that a source gives by name."""
    for node in graph:
        if node.op_type == "MatMul" and node.domain == "":
            x, weight = node.inputs
            tensor = weight.const_value if weight is not None else None
            if x is not None and tensor is not None and _is_matrix(tensor):
                name = str(tensor.name)
                yield Linear(node, name, stored.get(name) or dense(weight, tensor), x)
        elif node.op_type == "MatMulNBits" and node.domain == MICROSOFT and _readable(node):
            x, weight, *_ = inputs = tuple(node.inputs)
            assert x is not None
            assert weight is not None
            bias = inputs[_NBITS_BIAS] if len(inputs) > _NBITS_BIAS else None
            yield Linear(node, str(weight.name), NBits.of(node), x, bias)


class NBits:
    """The weight of a MatMulNBits: groups of `block_size` inputs, each with a scale and a zero point."""

    quantised = True

    def __init__(self, inputs: Sequence[ir.Value | None], sizes: Mapping[str, int]) -> None:
        self.outer, self.inner = sizes["N"], sizes["K"]
        self._bits, self._group = sizes["bits"], sizes["block_size"]
        self._inputs = inputs
        self._groups = -(-self.inner // self._group)

    @classmethod
    def of(cls, node: ir.Node) -> "NBits":
        """The weight of a node."""
        names = ("K", "N", "bits", "block_size")
        return cls(tuple(node.inputs), {name: node.attributes[name].as_int() for name in names})

    @cached_property
    def form(self) -> Form | None:
        """The form of its blocks: zero points that are all alike need no minima."""
        if self._group % BLOCK:
            return None
        zeros, scales = self._zeros(), self._scales()
        if zeros is None:
            return Form(self._bits, 1 << (self._bits - 1), minimum=False, half=fits_half(scales))
        return Form(self._bits, 0, minimum=True, half=fits_half(scales, -zeros * scales))

    def floats(self, start: int, stop: int) -> Floats:
        """The weights of the outputs [start, stop), [outputs, inner]."""
        zeros = self._zeros()
        zero = np.float32(1 << (self._bits - 1)) if zeros is None else zeros[start:stop, :, None]
        numbers = self._numbers(start, stop).reshape(stop - start, self._groups, self._group)
        values = (numbers.astype(np.float32) - zero) * self._scales()[start:stop, :, None]
        floats: Floats = values.reshape(stop - start, -1)[:, : self.inner]
        return floats

    def blocks(self, start: int, stop: int) -> Blocks:
        """Likewise as blocks of `form`."""
        assert self.form is not None, f"groups of {self._group} are no blocks of {BLOCK}"
        count, blocks = self._group // BLOCK, -(-self.inner // BLOCK)
        d = np.repeat(self._scales()[start:stop], count, axis=1)[:, :blocks]
        zeros, m = self._zeros(), None
        if zeros is not None:
            m = (-np.repeat(zeros[start:stop], count, axis=1)[:, :blocks] * d).astype(self.form.kind)
        numbers = self._numbers(start, stop)[:, : self.inner]
        return Blocks(numbers, d.astype(self.form.kind), m, self.form.zero)

    def _numbers(self, start: int, stop: int) -> npt.NDArray[np.uint8]:
        packed = array(self._inputs[1]).reshape(self.outer, self._groups, -1)[start:stop]
        return _unpacked(packed, self._bits).reshape(stop - start, -1)

    def _scales(self) -> Floats:
        return np.asarray(array(self._inputs[2]), np.float32).reshape(self.outer, self._groups)

    def _zeros(self) -> Floats | None:
        """The zero points [outer, groups]; None where all are the middle."""
        if len(self._inputs) < 4 or self._inputs[3] is None:
            return None
        packed = array(self._inputs[3])
        if packed.dtype == np.uint8:
            packed = _unpacked(packed.reshape(self.outer, -1), self._bits)[:, : self._groups]
        zeros = packed.astype(np.float32).reshape(self.outer, self._groups)
        return None if (zeros == 1 << (self._bits - 1)).all() else zeros


def dense(value: ir.Value | None, tensor: ir.TensorProtocol) -> Dense:
    """A constant [in, out] of floats as a weight."""
    inner, outer = dimensions(tensor)
    return Dense(outer, inner, partial(_transposed, value))


def _transposed(value: ir.Value | None, start: int, stop: int) -> Floats:
    transposed: Floats = array(value)[:, start:stop].T
    return transposed


def _is_matrix(tensor: ir.TensorProtocol) -> bool:
    return tensor.dtype == ir.DataType.FLOAT and len(dimensions(tensor)) == 2


def _readable(node: ir.Node) -> bool:
    """Whether the node's packing is one that is understood here: 4 or 8 bits, groups in order."""
    shuffled = len(node.inputs) > 4 and node.inputs[4] is not None
    return node.attributes["bits"].as_int() in (4, 8) and not shuffled


def _unpacked(packed: npt.NDArray[Any], bits: int) -> npt.NDArray[np.uint8]:
    """Bytes to numbers along the last axis, the low half of each byte first."""
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


def array(value: ir.Value | None) -> npt.NDArray[Any]:
    """A constant's array."""
    tensor = value.const_value if value is not None else None
    assert tensor is not None, "the value is no constant"
    return _mapped(tensor) if isinstance(tensor, ir.ExternalTensor) else tensor.numpy()
