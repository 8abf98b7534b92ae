import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.importing.split import counts
from tests.scheduler.model.importing.runner import Floats


def rounding(x: Floats, often: np.ndarray[tuple[int], np.dtype[np.int64]]) -> float:
    """The squares of what one limb loses of rows, each channel carried so often."""
    carried = np.repeat(x / often, often, axis=1)
    step = np.maximum(np.abs(carried).max(axis=1, keepdims=True), 1e-12) / 127
    return float(((np.rint(carried / step) * step - carried) ** 2).sum())


@given(st.integers(0, 2**32 - 1), st.integers(1, 40), st.integers(2, 60), st.integers(0, 70))
def test_as_many_copies_are_made_as_were_asked_for(seed: int, rows: int, inner: int, copies: int) -> None:
    x = np.random.default_rng(seed).standard_normal((rows, inner)).astype(np.float32)
    often = counts(x, copies)
    assert often.shape == (inner,)
    assert often.min() >= 1
    assert often.sum() == inner + copies


@given(st.integers(0, 2**32 - 1))
def test_copies_of_outlier_channels_make_the_rounding_finer(seed: int) -> None:
    random = np.random.default_rng(seed)
    x = random.standard_normal((64, 128)).astype(np.float32)
    x[:, random.choice(128, 3, replace=False)] *= 30
    assert rounding(x, counts(x, 32)) < rounding(x, np.ones(128, np.int64)) / 4


def test_rows_of_zeros_are_no_trouble() -> None:
    assert counts(np.zeros((4, 8), np.float32), 5).sum() == 13
