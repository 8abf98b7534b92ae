import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from scheduler.logprobs import FLOOR, token_logprobs


@st.composite
def rows(draw: st.DrawFn) -> NDArray[np.float32]:
    """Logits with ties."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([0.0, 0.5, 5.0, 40.0]))
    values = np.round(rng.normal(scale=spread, size=draw(st.sampled_from([1, 2, 7, 400]))) * 4) / 4
    return values.astype(np.float32)


@given(rows(), st.integers(0, 20), st.data())
def test_logprobs_are_those_of_a_float64_log_softmax_in_order_of_likelihood_then_id(
    row: NDArray[np.float32], count: int, data: st.DataObject
) -> None:
    token = data.draw(st.integers(0, len(row) - 1))
    wide = row.astype(np.float64)
    oracle = wide - wide.max() - np.log(np.exp(wide - wide.max()).sum())
    order = sorted(range(len(row)), key=lambda i: (-row[i], i))
    found = token_logprobs(row, token, count)
    assert found is not None
    assert [ranked.token for ranked in found.top] == order[:count]
    assert [ranked.rank for ranked in found.top] == list(range(1, len(found.top) + 1))
    assert (found.chosen.token, found.chosen.rank) == (token, order.index(token) + 1)
    for ranked in (found.chosen, *found.top):
        assert abs(ranked.logprob - oracle[ranked.token]) < 1e-6


def test_a_logprob_is_always_a_number() -> None:
    found = token_logprobs(np.array([0.0, -np.inf, -3e38], np.float32), 1, 3)
    assert found is not None
    assert [found.chosen.logprob, *(ranked.logprob for ranked in found.top)] == [FLOOR, 0.0, FLOOR, FLOOR]


def test_a_row_without_usable_numbers_has_none() -> None:
    for bad in (np.nan, np.inf):
        assert token_logprobs(np.array([0.0, bad], np.float32), 0, 1) is None
