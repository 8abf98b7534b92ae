"""Weights of linear layers where they are stored, some outputs at a time: as floats, and as blocks where they are.

Knows what sources hold; not what becomes of it.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from scheduler.model.importing.blocks import Blocks, Floats, Form, common

GATED = 16
"""Gates, then as many ups, in a panel of a gated layer."""


class Stored(Protocol):
    """A weight [outer, inner]: outputs first."""

    @property
    def outer(self) -> int:
        """How many outputs."""

    @property
    def inner(self) -> int:
        """How many inputs."""

    @property
    def form(self) -> Form | None:
        """The form of its blocks; None where it is stored as floats, or in blocks that have no such form."""

    @property
    def quantised(self) -> bool:
        """Whether it is stored in whole numbers, of whatever form."""

    def floats(self, start: int, stop: int) -> Floats:
        """The weights of the outputs [start, stop), [outputs, inner]."""

    def blocks(self, start: int, stop: int) -> Blocks:
        """Likewise as blocks of `form`, where there is one."""


@dataclass(frozen=True, slots=True)
class Dense:
    """A weight that is read as floats, some outputs [start, stop) at a time, when they are asked for."""

    outer: int
    inner: int
    read: Callable[[int, int], Floats]  # [stop - start, inner]
    quantised: bool = False
    form: None = None

    def floats(self, start: int, stop: int) -> Floats:
        """As Stored has it."""
        return np.asarray(self.read(start, stop), np.float32)

    def blocks(self, start: int, stop: int) -> Blocks:
        """There are none."""
        raise NotImplementedError(f"a float weight has no blocks ({start} to {stop})")


class Joined:
    """Several weights of one input as one, the outputs of the one behind those of the other."""

    def __init__(self, parts: Sequence[Stored]) -> None:
        self._parts = parts
        forms = [part.form for part in parts if part.form is not None]
        self.form = common(forms) if len(forms) == len(parts) else None
        self.quantised = any(part.quantised for part in parts)
        self.inner = parts[0].inner
        self.outer = sum(part.outer for part in parts)

    def floats(self, start: int, stop: int) -> Floats:
        """As Stored has it."""
        return np.concatenate([part.floats(*span) for part, span in self._spans(start, stop)])

    def blocks(self, start: int, stop: int) -> Blocks:
        """As Stored has it."""
        assert self.form is not None, "one of the parts has no blocks"
        return concatenated([part.blocks(*span).to(self.form) for part, span in self._spans(start, stop)])

    def _spans(self, start: int, stop: int) -> list[tuple[Stored, tuple[int, int]]]:
        found, first = [], 0
        for part in self._parts:
            span = max(start - first, 0), min(stop - first, part.outer)
            if span[0] < span[1]:
                found.append((part, span))
            first += part.outer
        return found


class Gates:
    """Gates and ups of a gated layer as one weight, sixteen of the one before sixteen of the other."""

    def __init__(self, gate: Stored, up: Stored) -> None:
        self._gate, self._up = gate, up
        self.form = None if gate.form is None or up.form is None else common([gate.form, up.form])
        self.quantised = gate.quantised or up.quantised
        self.inner, self.outer = gate.inner, gate.outer + up.outer

    def floats(self, start: int, stop: int) -> Floats:
        """As Stored has it; `start` and `stop` are multiples of 32."""
        span = start // 2, stop // 2
        return interleaved(self._gate.floats(*span), self._up.floats(*span))

    def blocks(self, start: int, stop: int) -> Blocks:
        """Likewise."""
        assert self.form is not None, "one of the parts has no blocks"
        span = start // 2, stop // 2
        gate, up = (part.blocks(*span).to(self.form) for part in (self._gate, self._up))
        m = None if gate.m is None or up.m is None else interleaved(gate.m, up.m)
        return Blocks(interleaved(gate.numbers, up.numbers), interleaved(gate.d, up.d), m, gate.zero)


def concatenated(parts: Sequence[Blocks]) -> Blocks:
    """Blocks of one form, the outputs of the one behind those of the other."""
    minima = [part.m for part in parts if part.m is not None]
    return Blocks(
        np.concatenate([part.numbers for part in parts]),
        np.concatenate([part.d for part in parts]),
        np.concatenate(minima) if minima else None,
        parts[0].zero,
    )


def interleaved(one: npt.NDArray[Any], other: npt.NDArray[Any]) -> npt.NDArray[Any]:
    """Rows of two arrays in turns, GATED at a time."""
    shape = (-1, GATED, *one.shape[1:])
    return np.stack([one.reshape(shape), other.reshape(shape)], axis=1).reshape(-1, *one.shape[1:])
