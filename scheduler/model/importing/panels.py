"""How linear layers' weights lie for the operators: panels of 32 outputs, in each blocks of 32 inputs.

A block's numbers are bytes [8][32][4] (quads of inputs, outputs, inputs of a quad), or half of that for 4 bits, an
output in the low half of a byte and the sixteenth after it in the high half; then come its scales [32] and minima [32].
See `scheduler/model/kernels/weights.inl`. Knows arrays; neither sources nor graphs.
"""

from collections.abc import Iterator

import numpy as np
import numpy.typing as npt

from scheduler.model.importing.blocks import BLOCK, Blocks, Floats, Form, Scales
from scheduler.model.importing.stored import Stored

PANEL = 32
"""Outputs that lie together."""

SLAB = 32 * PANEL
"""Outputs that are packed at a time: bounds the arrays in memory."""

INT8_ZERO = 128
_FLOOR = 1e-12  # the scale of an output of zeros

Bytes = npt.NDArray[np.uint8]


def padded(count: int, multiple: int) -> int:
    """A count, rounded up."""
    return -(-count // multiple) * multiple


def block_panels_size(outer: int, inner: int, form: Form) -> int:
    """Bytes of a weight in blocks."""
    scales = PANEL * (2 if form.half else 4) * (2 if form.minimum else 1)
    return padded(outer, PANEL) // PANEL * (padded(inner, BLOCK) // BLOCK) * (128 * form.bits + scales)


def int8_panels_size(outer: int, inner: int) -> int:
    """Bytes of a weight with one scale an output, scales included."""
    return padded(outer, PANEL) * (padded(inner, BLOCK) + 4)


def int8_scales_at(outer: int, inner: int) -> int:
    """Where its scales are, behind its numbers."""
    return padded(outer, PANEL) * padded(inner, BLOCK)


def block_panels(weight: Stored, form: Form) -> Iterator[Bytes]:
    """A weight in blocks of a form that holds it, some panels at a time."""
    for start, stop in _slabs(weight.outer):
        yield pack_blocks(weight.blocks(start, stop).to(form), form)


def int8_panels(weight: Stored) -> Iterator[Bytes]:
    """A weight rounded to int8 with one scale an output, some panels at a time, and its scales at the end."""
    scales = np.zeros(padded(weight.outer, PANEL), np.float32)
    for start, stop in _slabs(weight.outer):
        numbers, scales[start:stop] = quantise(weight.floats(start, stop))
        yield pack_numbers(numbers, INT8_ZERO, 8).reshape(-1)
    yield scales.view(np.uint8)


def quantise(weight: Floats) -> tuple[Bytes, Floats]:
    """Round a weight [outputs, inputs] to numbers in 1..255 that count from 128, and a scale for each output.

    The error of each element is at most half of its output's scale.
    """
    scale = np.maximum(np.abs(weight).max(axis=1) / np.float32(127), np.float32(_FLOOR))
    return (np.rint(weight / scale[:, None]) + INT8_ZERO).astype(np.uint8), scale


def pack_numbers(numbers: Bytes, fill: int, bits: int) -> Bytes:
    """Numbers [outputs, inputs] as [panels, blocks, bytes]; `fill` stands where panels and blocks are not full."""
    outputs, inputs = numbers.shape
    ends = [(0, -outputs % PANEL), (0, -inputs % BLOCK)]
    full = np.pad(numbers, ends, constant_values=fill) if ends != [(0, 0), (0, 0)] else numbers
    panels, blocks = full.shape[0] // PANEL, full.shape[1] // BLOCK
    cells = full.reshape(panels, PANEL, blocks, BLOCK // 4, 4).transpose(0, 2, 3, 1, 4)
    if bits == 4:
        cells = cells[..., : PANEL // 2, :] | cells[..., PANEL // 2 :, :] << np.uint8(4)
    return np.ascontiguousarray(cells).reshape(panels, blocks, -1)


def pack_blocks(blocks: Blocks, form: Form) -> Bytes:
    """Blocks as bytes, one panel after the other."""
    parts = [pack_numbers(blocks.numbers, 0, form.bits), _scales(blocks.d)]
    if blocks.m is not None:
        parts.append(_scales(blocks.m))
    return np.concatenate(parts, axis=2).reshape(-1)


def _scales(scales: Scales) -> Bytes:
    """Scales [outputs, blocks] as [panels, blocks, bytes]."""
    full = np.pad(scales, [(0, -len(scales) % PANEL), (0, 0)])
    cells = full.reshape(-1, PANEL, scales.shape[1]).swapaxes(1, 2)
    return np.ascontiguousarray(cells).view(np.uint8)


def _slabs(outer: int) -> Iterator[tuple[int, int]]:
    for start in range(0, outer, SLAB):
        yield start, min(start + SLAB, outer)
