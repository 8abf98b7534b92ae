"""Linear operators against numpy in float64, in every form and on every instruction set that this machine has."""

from collections.abc import Iterator, Mapping

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from scheduler.model.kernels import library
from tests.scheduler.model.kernels.operators import (
    Array,
    Bytes,
    Weights,
    block_weights,
    int8_weights,
    padded,
    rounded_rows,
    run,
)

NONE: Mapping[str, float] = {}
FORMS = ["int8", "4 bits", "4 bits, float32 minima", "8 bits", "8 bits, float16 minima"]


@pytest.fixture(params=library.available(), autouse=True)
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    library.select(request.param)
    yield request.param
    library.select(None)


def weights(rng: np.random.Generator, file: Bytes, form: str, k: int, n: int) -> Weights:
    if form == "int8":
        return int8_weights(file, rng.integers(-127, 128, (k, n)), rng.uniform(0.001, 0.02, n).astype(np.float32))
    bits = 4 if form.startswith("4") else 8
    numbers = rng.integers(0, 2**bits, (k, n))
    kind = np.float16 if form in ("4 bits", "8 bits, float16 minima") else np.float32
    d = rng.uniform(-0.02, 0.02, (-(-k // 32), n)).astype(kind)
    m = rng.uniform(-0.2, 0.2, d.shape).astype(kind) if "minima" in form else None
    return block_weights(file, numbers, d, m, 0 if m is not None else 1 << (bits - 1), bits)


def linear(
    x: Array, w: Weights, file: Bytes, *more: Array, op: str = "Linear", attributes: Mapping[str, float] = NONE
) -> Array:
    every = {**w.attributes, **attributes}
    (y,) = run(op, [x.astype(np.float32)[None], file.array(), *more], [np.float32], **every)
    rows: Array = y[0]
    return rows


def close(y: Array, wanted: NDArray[np.float64], within: float = 2e-5) -> None:
    """Within what float32 makes of sums of this size; a norm may also round a tie the other way."""
    assert y.shape == wanted.shape
    assert np.isfinite(y).all()
    assert np.abs(y - wanted).max(initial=0) <= within * max(np.abs(wanted).max(initial=0), 1e-30)


shapes = st.tuples(st.integers(1, 40), st.integers(1, 200), st.integers(1, 100), st.integers(0, 2**32))


@pytest.mark.parametrize("form", FORMS)
@given(shapes)
@settings(max_examples=15)
def test_any_shape_is_within_rounding_of_float64(form: str, shape: tuple[int, int, int, int]) -> None:
    rows, k, n, seed = shape
    rng, file = np.random.default_rng(seed), Bytes()
    w = weights(rng, file, form, k, n)
    x = rng.normal(size=(rows, k)) * 10 ** rng.uniform(-3, 3, (rows, 1))
    x[rng.random(rows) < 0.1] = 0
    y = linear(x, w, file)
    rounded = rounded_rows(x)
    for row in range(rows):  # rows are of very different sizes
        close(y[row : row + 1], rounded[row : row + 1] @ w.dense)


@pytest.mark.parametrize("form", FORMS)
def test_a_row_s_bits_do_not_depend_on_its_company(form: str) -> None:
    rng, file = np.random.default_rng(1), Bytes()
    w = weights(rng, file, form, 576, 96)
    x = rng.normal(size=(70, 576))
    together = linear(x, w, file)
    for first, last in [(0, 1), (3, 5), (7, 20), (11, 58), (69, 70), (0, 70)]:
        assert np.array_equal(linear(x[first:last], w, file), together[first:last])


def test_the_forms_agree_between_instruction_sets() -> None:
    rng, file = np.random.default_rng(2), Bytes()
    x = rng.normal(size=(9, 320))
    for form in FORMS:
        w = weights(rng, file, form, 320, 64)
        mine = linear(x, w, file)
        library.select("portable")
        close(mine, linear(x, w, file).astype(np.float64))


@pytest.mark.parametrize("kind", ["rms", "layer"])
def test_a_norm_before_the_rows_are_rounded(kind: str) -> None:
    rng, file = np.random.default_rng(3), Bytes()
    w = weights(rng, file, "int8", 200, 64)
    weight = rng.normal(size=200).astype(np.float32)
    x = rng.normal(size=(7, 200)) + 0.5
    centred = x - x.mean(axis=1, keepdims=True) if kind == "layer" else x
    normed = centred / np.sqrt((centred**2).mean(axis=1, keepdims=True) + 1e-5)
    norm = {"norm": 1 if kind == "rms" else 2, "epsilon": 1e-5}
    close(linear(x, w, file, attributes=norm), rounded_rows(normed) @ w.dense, 2e-3)
    y = linear(x, w, file, attributes=norm | {"norm_at": file.add(weight)})
    close(y, rounded_rows(normed * weight) @ w.dense, 2e-3)


def test_bias_factor_residual_and_picked_rows() -> None:
    rng, file = np.random.default_rng(4), Bytes()
    w = weights(rng, file, "8 bits", 96, 72)
    bias, x = rng.normal(size=72).astype(np.float32), rng.normal(size=(6, 96))
    more = {"bias_at": file.add(padded(bias, 0, 32)), "alpha": 0.22}
    plain = 0.22 * (rounded_rows(x) @ w.dense + bias)
    close(linear(x, w, file, attributes=more), plain)
    residual = rng.normal(size=(1, 6, 72)).astype(np.float32)
    close(linear(x, w, file, residual, op="LinearAdd", attributes=more), residual[0] + plain)
    rows = np.array([5, 0, 0], np.int64)
    close(linear(x, w, file, rows, op="LinearPick", attributes=more), plain[rows])
    assert linear(x, w, file, rows[:0], op="LinearPick", attributes=more).shape == (0, 72)


@pytest.mark.parametrize("act", [1, 2])
def test_gates(act: int) -> None:
    rng, file = np.random.default_rng(5), Bytes()
    w = weights(rng, file, "int8", 128, 96)
    x = rng.normal(size=(5, 128)) * 3
    both = (rounded_rows(x) @ w.dense).reshape(5, -1, 2, 16)
    gate, up = both[:, :, 0].reshape(5, -1), both[:, :, 1].reshape(5, -1)
    inner = gate if act == 1 else 2 * np.sqrt(2 / np.pi) * (gate + 0.044715 * gate**3)
    with np.errstate(over="ignore"):
        close(linear(x, w, file, attributes={"act": act}), gate / (1 + np.exp(-inner)) * up)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
def test_what_is_no_number_stays_in_its_row(bad: float) -> None:
    rng, file = np.random.default_rng(6), Bytes()
    x = rng.normal(size=(5, 64))
    for form in FORMS:
        w = weights(rng, file, form, 64, 32)
        clean = linear(x, w, file)
        spoilt = x.copy()
        spoilt[2, 40] = bad
        y = linear(spoilt, w, file)
        assert not np.isfinite(y[2]).any()
        assert np.array_equal(np.delete(y, 2, 0), np.delete(clean, 2, 0))


def test_huge_tiny_and_denormal_rows() -> None:
    rng, file = np.random.default_rng(7), Bytes()
    w = weights(rng, file, "int8", 64, 32)
    x = rng.normal(size=(4, 64))
    for size in (1e30, 1e-30):
        close(linear(x * size, w, file), rounded_rows(x * size) @ w.dense)
    assert np.abs(linear(x * 1e-42, w, file)).max() < 1e-30


@pytest.mark.parametrize(
    "change",
    [
        {"w_at": 10**9},
        {"w_at": -128},
        {"k": 63},
        {"form": 7},
        {"scale_at": 1 << 40},
        {"bias_at": 1 << 40},
        {"n": 10**6},
    ],
)
def test_places_outside_of_the_weights_are_an_error(change: dict[str, int]) -> None:
    rng, file = np.random.default_rng(8), Bytes()
    w = weights(rng, file, "int8", 64, 32)
    with pytest.raises(Exception, match="linear node"):
        run("Linear", [np.ones((1, 3, 64), np.float32), file.array()], [np.float32], **{**w.attributes, **change})


def test_a_picked_row_that_is_not_there_is_an_error() -> None:
    rng, file = np.random.default_rng(9), Bytes()
    w = weights(rng, file, "int8", 64, 32)
    for row in (3, -1, 2**40):
        with pytest.raises(Exception, match="picked row"):
            linear(np.ones((3, 64)), w, file, np.array([row], np.int64), op="LinearPick")


@pytest.mark.parametrize("form", FORMS)
def test_a_table_that_lies_as_weights_is_read_back(form: str) -> None:
    rng, file = np.random.default_rng(10), Bytes()
    w = weights(rng, file, form, 72, 100)
    ids = np.array([[99, 0, 16, 31, 0, *range(40, 60)]], np.int64)
    (y,) = run("Embed", [ids, file.array()], [np.float32], **w.attributes)
    np.testing.assert_allclose(y[0], w.dense.T[ids[0]], rtol=1e-5, atol=1e-6)
    for wrong in (100, -1):
        with pytest.raises(Exception, match="vocabulary"):
            run("Embed", [np.array([[wrong]]), file.array()], [np.float32], **w.attributes)
