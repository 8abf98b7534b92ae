"""Weights as numbers in blocks, as sources store them: d * (number - zero) + m for 32 inputs of an output at a time.

Knows the arithmetic of blocks; neither files nor graphs.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

Floats = npt.NDArray[np.float32]
Scales = npt.NDArray[Any]
"""float16 or float32."""

BLOCK = 32
"""Inputs that share a scale. Larger blocks of a source repeat theirs."""


@dataclass(frozen=True, slots=True)
class Form:
    """What all blocks of a matrix have in common.

    Attributes:
        bits: of a number, 4 or 8.
        zero: the number that stands for 0, or for the minimum where there are minima.
        minimum: whether blocks have minima.
        half: whether scales and minima are float16.
    """

    bits: int
    zero: int
    minimum: bool
    half: bool

    @property
    def kind(self) -> type[np.float16] | type[np.float32]:
        """What scales and minima are kept as."""
        return np.float16 if self.half else np.float32


@dataclass(frozen=True, slots=True)
class Blocks:
    """Some outputs' weights.

    Attributes:
        numbers: uint8 [outputs, inputs].
        d: scales [outputs, inputs / 32], rounded up.
        m: minima, likewise, or None.
        zero: as in Form.
    """

    numbers: npt.NDArray[np.uint8]
    d: Scales
    m: Scales | None
    zero: int

    def floats(self) -> Floats:
        """What the blocks stand for, float32 [outputs, inputs]."""
        inputs = self.numbers.shape[1]
        values = (self.numbers.astype(np.float32) - np.float32(self.zero)) * _spread(self.d, inputs)
        return values if self.m is None else values + _spread(self.m, inputs)

    def to(self, form: Form) -> "Blocks":
        """The same weights in a form that holds them: of as many bits, with minima where the zeros differ."""
        d, m, zero = self.d, self.m, self.zero
        if form.zero != zero:
            shift = np.float32(form.zero - zero) * d.astype(np.float32)
            m = shift if m is None else m.astype(np.float32) + shift
        elif form.minimum and m is None:
            m = np.zeros_like(d)
        return Blocks(self.numbers, d.astype(form.kind), None if m is None else m.astype(form.kind), form.zero)


def common(forms: list[Form]) -> Form:
    """The form that holds weights of all of these."""
    first = forms[0]
    if all(form == first for form in forms):
        return first
    same_zero = len({form.zero for form in forms}) == 1
    return Form(
        bits=max(form.bits for form in forms),
        zero=first.zero if same_zero else 0,
        minimum=not same_zero or any(form.minimum for form in forms),
        half=same_zero and all(form.half for form in forms),
    )


def rounded(weight: Floats) -> Blocks:
    """Float weights [outputs, inputs] as 8-bit blocks, each with the scale of its largest magnitude in float16."""
    outputs, inputs = weight.shape
    padded = np.pad(weight, [(0, 0), (0, -inputs % BLOCK)]).reshape(outputs, -1, BLOCK)
    d = (np.abs(padded).max(axis=2) / np.float32(127)).astype(np.float16)
    step = d.astype(np.float32)[..., None]
    whole = np.rint(np.divide(padded, step, out=np.zeros_like(padded), where=step > 0)).clip(-127, 127)
    return Blocks((whole + 128).astype(np.uint8).reshape(outputs, -1)[:, :inputs], d, None, 128)


ROUNDED = Form(bits=8, zero=128, minimum=False, half=True)
"""The form of `rounded`."""


def fits_half(*arrays: npt.NDArray[np.float32]) -> bool:
    """Whether float16 holds all of these exactly."""
    with np.errstate(over="ignore"):
        return all(bool((array.astype(np.float16).astype(np.float32) == array).all()) for array in arrays)


def _spread(scales: Scales, inputs: int) -> Floats:
    return np.repeat(scales.astype(np.float32), BLOCK, axis=1)[:, :inputs]
