"""The block types of GGUF as numbers in blocks of 32: what a file holds, exactly.

Layouts as in the `gguf` package's dequantisation and ggml's `block_q*` structures. Types whose blocks are smaller, or
are no scale and minimum of whole numbers, are not here.
"""

from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from scheduler.model.importing.blocks import BLOCK, Blocks, Form

Bytes = npt.NDArray[np.uint8]

FORMS = {
    "Q4_0": Form(bits=4, zero=8, minimum=False, half=True),
    "Q4_1": Form(bits=4, zero=0, minimum=True, half=True),
    "Q5_0": Form(bits=8, zero=16, minimum=False, half=True),
    "Q5_1": Form(bits=8, zero=0, minimum=True, half=True),
    "Q8_0": Form(bits=8, zero=128, minimum=False, half=True),
    "Q4_K": Form(bits=4, zero=0, minimum=True, half=False),
    "Q5_K": Form(bits=8, zero=0, minimum=True, half=False),
}


def read_blocks(kind: str, data: Bytes) -> Blocks:
    """Read rows of a tensor of a type in FORMS: `data` are their bytes, [outputs, bytes]."""
    return _READERS[kind](data)


def _cells(data: Bytes, size: int) -> Bytes:
    return data.reshape(data.shape[0], -1, size)


def _half(cells: Bytes, at: int) -> npt.NDArray[np.float16]:
    return np.ascontiguousarray(cells[..., at : at + 2]).view(np.float16)[..., 0]


def _nibbles(packed: Bytes) -> Bytes:
    """Bytes [.., n] as [.., 2 n] numbers: all low halves, then all high ones."""
    return np.concatenate([packed & 15, packed >> 4], axis=-1)


def _fifth(cells: Bytes, at: int) -> Bytes:
    """The fifth bits of 32 numbers, as 0 or 16."""
    return np.unpackbits(cells[..., at : at + 4], axis=-1, bitorder="little") << np.uint8(4)


def _blocks(numbers: Bytes, d: npt.NDArray[np.float16], m: npt.NDArray[np.float16] | None, zero: int) -> Blocks:
    return Blocks(numbers.reshape(len(numbers), -1), d, m, zero)


def _q4_0(data: Bytes) -> Blocks:
    cells = _cells(data, 18)
    return _blocks(_nibbles(cells[..., 2:]), _half(cells, 0), None, 8)


def _q4_1(data: Bytes) -> Blocks:
    cells = _cells(data, 20)
    return _blocks(_nibbles(cells[..., 4:]), _half(cells, 0), _half(cells, 2), 0)


def _q5_0(data: Bytes) -> Blocks:
    cells = _cells(data, 22)
    return _blocks(_nibbles(cells[..., 6:]) | _fifth(cells, 2), _half(cells, 0), None, 16)


def _q5_1(data: Bytes) -> Blocks:
    cells = _cells(data, 24)
    return _blocks(_nibbles(cells[..., 8:]) | _fifth(cells, 4), _half(cells, 0), _half(cells, 2), 0)


def _q8_0(data: Bytes) -> Blocks:
    cells = _cells(data, 34)
    return _blocks(cells[..., 2:] ^ np.uint8(128), _half(cells, 0), None, 128)  # two's complement to numbers from 128


def _super(cells: Bytes) -> tuple[npt.NDArray[np.float32], npt.NDArray[np.float32]]:
    """Scales and minima of the eight blocks of 32 in a block of 256: 6-bit numbers times a scale and a minimum."""
    packed = cells[..., 4:16]
    low, middle, high = packed[..., 0:4], packed[..., 4:8], packed[..., 8:12]
    scales = np.concatenate([low & 63, (high & 15) | (low >> 6) << 4], axis=-1)
    minima = np.concatenate([middle & 63, (high >> 4) | (middle >> 6) << 4], axis=-1)
    d, m = (_half(cells, at).astype(np.float32)[..., None] for at in (0, 2))
    rows = len(cells)
    return (d * scales.astype(np.float32)).reshape(rows, -1), (-m * minima.astype(np.float32)).reshape(rows, -1)


def _q4_k(data: Bytes) -> Blocks:
    cells = _cells(data, 144)
    d, m = _super(cells)
    pairs = cells[..., 16:].reshape(*cells.shape[:2], 4, BLOCK)
    return Blocks(_nibbles(pairs).reshape(len(data), -1), d, m, 0)


def _q5_k(data: Bytes) -> Blocks:
    cells = _cells(data, 176)
    d, m = _super(cells)
    fifths = cells[..., None, 16:48] >> np.arange(8, dtype=np.uint8)[:, None] & 1  # [.., block of 32, its number]
    pairs = cells[..., 48:].reshape(*cells.shape[:2], 4, BLOCK)
    numbers: Bytes = _nibbles(pairs).reshape(*cells.shape[:2], 8, BLOCK) | fifths.astype(np.uint8) << np.uint8(4)
    return Blocks(numbers.reshape(len(data), -1), d, m, 0)


_READERS: dict[str, Callable[[Bytes], Blocks]] = {
    "Q4_0": _q4_0,
    "Q4_1": _q4_1,
    "Q5_0": _q5_0,
    "Q5_1": _q5_1,
    "Q8_0": _q8_0,
    "Q4_K": _q4_k,
    "Q5_K": _q5_k,
}
