"""The random weights of a shape."""

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from server.bench.shape import RandomBlocks


@given(st.integers(0, 2**32 - 1), st.tuples(st.integers(0, 99), st.integers(0, 99)), st.integers(1, 70))
def test_they_are_the_same_however_they_are_cut(seed: int, ends: tuple[int, int], inner: int) -> None:
    matrix, (start, stop) = RandomBlocks(seed, 100, inner), (min(ends), max(ends) + 1)
    assert np.array_equal(matrix.floats(start, stop), matrix.floats(0, 100)[start:stop])
    assert not np.array_equal(matrix.floats(0, 100), RandomBlocks(seed + 1, 100, inner).floats(0, 100))


def test_they_keep_the_size_of_what_they_multiply() -> None:
    weight = RandomBlocks(1, 512, 1024).floats(0, 512)
    y = np.random.default_rng(0).standard_normal((20, 1024), np.float32) @ weight.T
    assert 0.9 < y.std() < 1.1
