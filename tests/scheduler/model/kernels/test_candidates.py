"""The likeliest tokens of each row against sorting, and what the vocabulary weighs against float64."""

from collections.abc import Iterator

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from scheduler.model.kernels import library
from tests.scheduler.model.kernels.operators import Array, run

MOST = 128


@pytest.fixture(params=library.available(), autouse=True)
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    library.select(request.param)
    yield request.param
    library.select(None)


def candidates(logits: Array, temperatures: list[float]) -> list[Array]:
    inputs = [logits.astype(np.float32)[None], np.array(temperatures, np.float32)]
    return run("Candidates", inputs, [np.int32, np.float32, np.float32])


def rows(seed: int, count: int, vocabulary: int, distinct: int) -> Array:
    rng = np.random.default_rng(seed)
    values = rng.normal(size=distinct).astype(np.float32) * 5
    return values[rng.integers(0, distinct, (count, vocabulary))]


@given(st.integers(0, 2**32), st.integers(1, 4), st.integers(1, 20_000), st.sampled_from([2, 40, 100_000]))
@settings(max_examples=40)
def test_ids_are_those_of_a_stable_sort(seed: int, count: int, vocabulary: int, distinct: int) -> None:
    logits = rows(seed, count, vocabulary, distinct)
    ids, values, _ = candidates(logits, [1.0] * count)
    wanted = (-logits).argsort(axis=1, kind="stable")[:, :MOST]
    assert np.array_equal(ids, wanted)
    assert np.array_equal(values, np.take_along_axis(logits, wanted, axis=1))


@given(st.integers(0, 2**32), st.integers(1, 60_000), st.floats(0.05, 5))
@settings(max_examples=30)
def test_the_mass_is_that_of_float64(seed: int, vocabulary: int, temperature: float) -> None:
    logits = rows(seed, 2, vocabulary, 1000)
    _, _, mass = candidates(logits, [temperature, 0.0])
    row = logits[0].astype(np.float64)
    assert mass[0] == pytest.approx(np.exp((row - row.max()) / temperature).sum(), rel=2e-5)
    assert mass[1] == 0  # greedy rows ask for none


def test_minus_infinity_is_a_logit_like_others_but_for_the_largest() -> None:
    logits = np.full((2, 300), -np.inf, np.float32)
    logits[0, [7, 200]] = [1, 2]
    ids, values, mass = candidates(logits, [1.0, 1.0])
    assert ids[0, :4].tolist() == [200, 7, 0, 1]
    assert mass[0] == pytest.approx(1 + np.exp(-1))
    assert np.isnan(values[1, 0])


@pytest.mark.parametrize("bad", [np.nan, np.inf])
def test_a_row_that_is_not_finite_says_so_alone(bad: float) -> None:
    logits = rows(0, 3, 5000, 100)
    logits[1, 4321] = bad
    ids, values, _ = candidates(logits, [1.0, 1.0, 1.0])
    assert np.isnan(values[1, 0])
    assert np.array_equal(ids[[0, 2]], (-logits[[0, 2]]).argsort(axis=1, kind="stable")[:, :MOST])


def test_temperatures_for_other_rows_are_an_error() -> None:
    with pytest.raises(Exception, match="temperatures"):
        candidates(rows(0, 3, 50, 10), [1.0])


def test_no_rows_are_none() -> None:
    ids, values, mass = candidates(np.zeros((0, 500)), [])
    assert ids.shape == values.shape == (0, 128)
    assert mass.shape == (0,)
