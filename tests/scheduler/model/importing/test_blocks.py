"""Blocks of every type: what a file holds is read exactly, and no change of form changes what it stands for."""

import numpy as np
import pytest
from gguf import GGML_QUANT_SIZES, GGMLQuantizationType, dequantize
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.importing.blocks import Blocks, Form, common, fits_half, rounded
from scheduler.model.importing.gguf_blocks import FORMS, read_blocks

SCALES = {"Q4_1": (0, 2), "Q5_1": (0, 2), "Q4_K": (0, 2), "Q5_K": (0, 2)}
"""Where a type's float16 scales and minima are in its blocks; elsewhere there is one scale, at 0."""


@pytest.mark.parametrize("kind", FORMS)
@given(st.integers(0, 2**32 - 1), st.integers(1, 5), st.integers(1, 3))
def test_blocks_of_a_file_are_what_gguf_makes_of_them(kind: str, seed: int, outputs: int, count: int) -> None:
    rng, type_ = np.random.default_rng(seed), GGMLQuantizationType[kind]
    size = GGML_QUANT_SIZES[type_][1]
    data = rng.integers(0, 256, (outputs, count, size), np.uint8)
    for at in SCALES.get(kind, (0,)):
        data[..., at : at + 2] = rng.normal(0, 0.1, (outputs, count, 1)).astype(np.float16).view(np.uint8)
    found = read_blocks(kind, data.reshape(outputs, -1))
    expected = dequantize(data.reshape(outputs, -1), type_)
    assert np.array_equal(found.floats(), expected.reshape(outputs, -1))
    form = FORMS[kind]
    assert found.d.dtype == np.dtype(form.kind)
    assert (found.zero, found.m is not None) == (form.zero, form.minimum)
    assert found.numbers.max() < 2**form.bits


forms = st.builds(
    Form, bits=st.sampled_from([4, 8]), zero=st.sampled_from([0, 8, 16]), minimum=st.booleans(), half=st.booleans()
)


def some_blocks(seed: int, form: Form, outputs: int = 3, inputs: int = 40) -> Blocks:
    rng = np.random.default_rng(seed)
    numbers = rng.integers(0, 2**form.bits, (outputs, inputs)).astype(np.uint8)
    d, m = rng.normal(size=(2, outputs, -(-inputs // 32))).astype(form.kind)
    return Blocks(numbers, d, m if form.minimum else None, form.zero)


@given(st.lists(forms, min_size=1, max_size=3), st.integers(0, 2**32 - 1))
def test_a_common_form_holds_the_weights_of_each(found: list[Form], seed: int) -> None:
    together = common(found)
    for form in found:
        blocks = some_blocks(seed, form)
        assert form.bits <= together.bits
        changed = blocks.to(together)
        assert changed.d.dtype == np.dtype(together.kind)
        assert (changed.zero, changed.m is not None) == (together.zero, together.minimum)
        np.testing.assert_allclose(changed.floats(), blocks.floats(), rtol=1e-5, atol=1e-5)


@given(st.integers(0, 2**32 - 1), st.integers(1, 4), st.integers(1, 100), st.integers(-3, 3))
def test_rounding_floats_to_blocks_loses_half_a_step_of_each(seed: int, outputs: int, inputs: int, power: int) -> None:
    rng = np.random.default_rng(seed)
    weight = (rng.normal(size=(outputs, inputs)) * 10.0**power).astype(np.float32)
    weight[rng.random(outputs) < 0.2] = 0
    blocks = rounded(weight)
    step = np.repeat(blocks.d.astype(np.float64), 32, axis=1)[:, :inputs]
    # half a step, and half a unit in the last place of a float16 scale for each of at most 127 steps
    assert (np.abs(blocks.floats() - weight) <= step * (0.5 + 127 * 2.0**-11) + 127 * 2.0**-25).all()
    assert not blocks.floats()[~weight.any(axis=1)].any()


def test_what_float16_holds_is_told() -> None:
    held, lost = np.array([0.5, -65504, 2.0**-24], np.float32), np.array([0.1], np.float32)
    assert fits_half(held)
    assert not fits_half(held, lost)
    assert not fits_half(np.array([1e6], np.float32))
