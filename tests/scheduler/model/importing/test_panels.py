"""Packed weights, unpacked one number at a time by what the operators are promised."""

from dataclasses import dataclass

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.importing.blocks import Blocks, Floats, Form
from scheduler.model.importing.gguf_blocks import FORMS
from scheduler.model.importing.panels import (
    SLAB,
    Bytes,
    block_panels,
    block_panels_size,
    int8_panels,
    int8_panels_size,
    int8_scales_at,
    quantise,
)
from scheduler.model.importing.stored import Dense, Gates, Joined, Stored


@dataclass
class Held:
    """A weight in blocks that are there already."""

    all: Blocks
    form: Form
    quantised: bool = True

    @property
    def outer(self) -> int:
        return int(self.all.numbers.shape[0])

    @property
    def inner(self) -> int:
        return int(self.all.numbers.shape[1])

    def floats(self, start: int, stop: int) -> Floats:
        return self.blocks(start, stop).floats()

    def blocks(self, start: int, stop: int) -> Blocks:
        m = None if self.all.m is None else self.all.m[start:stop]
        return Blocks(self.all.numbers[start:stop], self.all.d[start:stop], m, self.all.zero)


def held(seed: int, form: Form, outer: int, inner: int) -> Held:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 2**form.bits, (outer, inner)).astype(np.uint8)
    d, m = rng.normal(size=(2, outer, -(-inner // 32))).astype(form.kind)
    return Held(Blocks(numbers, d, m if form.minimum else None, form.zero), form)


def float_of(data: Bytes, half: bool) -> float:
    return float(data[: 2 if half else 4].view(np.float16 if half else np.float32)[0])


def number(block: Bytes, bits: int, channel: int, k: int) -> int:
    """The number of an output of a panel and an input of a block."""
    quad, j = divmod(k, 4)
    if bits == 8:
        return int(block[quad * 128 + channel * 4 + j])
    byte = int(block[quad * 64 + channel % 16 * 4 + j])
    return byte >> 4 if channel >= 16 else byte & 15


def unpacked(data: Bytes, form: Form, outer: int, inner: int) -> Floats:
    """The weights that packed blocks stand for."""
    width, numbers = 2 if form.half else 4, 128 * form.bits
    size = numbers + 32 * width * (2 if form.minimum else 1)
    blocks = -(-inner // 32)
    found = np.zeros((outer, inner), np.float32)
    for n, k in np.ndindex(outer, inner):
        panel, channel = divmod(n, 32)
        block = data[(panel * blocks + k // 32) * size :][:size]
        d = np.float32(float_of(block[numbers + width * channel :], form.half))
        at = numbers + 32 * width + width * channel
        m = np.float32(float_of(block[at:], form.half)) if form.minimum else np.float32(0)
        found[n, k] = np.float32(number(block, form.bits, channel, k % 32) - form.zero) * d + m
    return found


def packed(weight: Stored) -> Bytes:
    assert weight.form is not None
    data = np.concatenate(list(block_panels(weight, weight.form)))
    assert data.nbytes == block_panels_size(weight.outer, weight.inner, weight.form)
    return data


shapes = st.tuples(st.integers(1, 70), st.integers(1, 70), st.integers(0, 2**32 - 1))


@pytest.mark.parametrize("kind", FORMS)
@given(shapes)
@settings(max_examples=5)
def test_packed_blocks_are_what_they_were(kind: str, shape: tuple[int, int, int]) -> None:
    outer, inner, seed = shape
    weight = held(seed, FORMS[kind], outer, inner)
    assert np.array_equal(unpacked(packed(weight), weight.form, outer, inner), weight.floats(0, outer))


@given(shapes)
@settings(max_examples=20)
def test_int8_weights_are_within_half_a_step_of_their_outputs(shape: tuple[int, int, int]) -> None:
    outer, inner, seed = shape
    weight = np.random.default_rng(seed).normal(size=(outer, inner)).astype(np.float32)
    data = np.concatenate(list(int8_panels(Dense(outer, inner, lambda start, stop: weight[start:stop]))))
    assert data.nbytes == int8_panels_size(outer, inner)
    scales = data[int8_scales_at(outer, inner) :].view(np.float32)
    blocks = -(-inner // 32)
    for n, k in np.ndindex(outer, inner):
        panel, channel = divmod(n, 32)
        byte = number(data[(panel * blocks + k // 32) * 1024 :][:1024], 8, channel, k % 32)
        assert 1 <= byte <= 255
        assert abs((byte - 128) * float(scales[n]) - float(weight[n, k])) <= 0.5001 * float(scales[n])
    assert not scales[outer:].any()


@pytest.mark.parametrize("seed", range(3))
def test_weights_larger_than_a_slab_are_packed_as_small_ones(seed: int) -> None:
    outer, inner = 2 * SLAB + 40, 32
    form = FORMS["Q4_1"]
    weight = held(seed, form, outer, inner)
    data = packed(weight)
    for start in (0, SLAB - 32, SLAB, 2 * SLAB):
        stop = min(start + 40, outer)
        rest = data[start // 32 * block_panels_size(32, inner, form) :]
        assert np.array_equal(unpacked(rest, form, stop - start, inner), weight.floats(start, stop))


@given(shapes, st.sampled_from(list(FORMS)), st.sampled_from(list(FORMS)))
@settings(max_examples=20)
def test_joined_weights_lie_behind_one_another(shape: tuple[int, int, int], one: str, other: str) -> None:
    outer, inner, seed = shape
    parts = [held(seed, FORMS[one], outer, inner), held(seed + 1, FORMS[other], 5, inner)]
    joined = Joined(parts)
    expected = np.concatenate([part.floats(0, part.outer) for part in parts])
    assert np.array_equal(joined.floats(0, joined.outer), expected)
    assert np.array_equal(joined.floats(outer - 1, outer + 2), expected[outer - 1 : outer + 2])
    assert joined.form is not None
    np.testing.assert_allclose(unpacked(packed(joined), joined.form, outer + 5, inner), expected, rtol=1e-5, atol=1e-5)


@given(st.integers(1, 4), st.integers(1, 50), st.sampled_from(["Q4_0", "Q4_1", "Q8_0", "Q4_K"]))
@settings(max_examples=20)
def test_a_panel_of_a_gated_layer_is_sixteen_gates_then_their_ups(count: int, inner: int, kind: str) -> None:
    gate, up = (held(seed, FORMS[kind], 16 * count, inner) for seed in (1, 2))
    gates = Gates(gate, up)
    assert gates.form is not None
    found = unpacked(packed(gates), gates.form, 32 * count, inner).reshape(count, 2, 16, inner)
    assert np.array_equal(found[:, 0].reshape(-1, inner), gate.floats(0, gate.outer))
    assert np.array_equal(found[:, 1].reshape(-1, inner), up.floats(0, up.outer))


def test_outputs_of_zeros_and_of_huge_numbers_are_rounded_too() -> None:
    weight = np.zeros((3, 40), np.float32)
    weight[1] = 3e38
    weight[2, 7] = 1e-30
    numbers, scales = quantise(weight)
    assert (numbers[0] == 128).all()
    assert (numbers[1] == 255).all()
    assert np.isfinite(scales).all()
