import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from scheduler.adjust import History
from scheduler.params import SamplingParams
from scheduler.sampling import CANDIDATES, sample

sizes = st.sampled_from([1, 2, 7, 60, CANDIDATES, CANDIDATES + 1, 900])
params = st.builds(
    lambda t, k, p, m: SamplingParams(max_tokens=1, temperature=t, top_k=k, top_p=p, min_p=m),
    st.sampled_from([0.0, 1e-320, 0.01, 0.3, 1.0, 1.9]),
    st.sampled_from([0, 1, 2, 5, 300, 10_000]),
    st.sampled_from([1e-9, 0.1, 0.5, 0.9, 0.999, 1.0]),
    st.sampled_from([0.0, 0.0, 1e-3, 0.2, 1.0]),
)


@st.composite
def rows(draw: st.DrawFn) -> NDArray[np.float32]:
    """Logits with ties: a few distinct values over the vocabulary."""
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    spread = draw(st.sampled_from([0.0, 0.01, 1.0, 8.0]))
    values = np.round(rng.normal(scale=spread, size=(draw(st.integers(1, 4)), draw(sizes))) * 4) / 4
    return values.astype(np.float32)


def generators(count: int, seed: int = 0) -> list[np.random.Generator]:
    return [np.random.Generator(np.random.PCG64(seed + i)) for i in range(count)]


def draw(logits: NDArray[np.float32], p: SamplingParams, seed: int = 0) -> list[int | None]:
    """Every row with the same parameters and nothing generated yet, each with a generator of its own."""
    count = len(logits)
    return sample(logits, [p] * count, generators(count, seed), [History(p, ()) for _ in range(count)])


def kept(row: NDArray[np.float32], p: SamplingParams) -> list[tuple[int, float]]:
    """The naive oracle: everything sorted, then cut by min_p, by top_k, then by top_p; (id, probability)."""
    with np.errstate(over="ignore"):
        weights = np.exp((row.astype(np.float64) - float(row.max())) / p.temperature)
    order = [i for i in sorted(range(len(row)), key=lambda i: (-row[i], i)) if weights[i] >= p.min_p]
    order = order[: p.top_k or None]
    total = sum(weights[i] for i in order)
    out, mass = [], 0.0
    for i in order:
        out.append((i, weights[i]))
        mass += weights[i]
        if p.top_p < 1 and mass >= p.top_p * total * (1 - 1e-12):
            break
    return out


@given(rows(), params, st.integers(0, 2**32))
def test_a_drawn_token_is_one_that_the_naive_truncation_keeps(
    logits: NDArray[np.float32], p: SamplingParams, seed: int
) -> None:
    for row, token in zip(logits, draw(logits, p, seed), strict=True):
        if p.greedy:
            assert token == min(range(len(row)), key=lambda i: (-row[i], i))
        else:
            assert token in [i for i, _ in kept(row, p)]


@given(rows(), params, st.integers(0, 2**32))
def test_a_row_is_sampled_in_company_as_it_is_alone(logits: NDArray[np.float32], p: SamplingParams, seed: int) -> None:
    together = draw(logits, p, seed)
    alone = [draw(logits[i : i + 1], p, seed + i)[0] for i in range(len(logits))]
    assert together == alone


@given(rows(), st.sampled_from([1e-320, 0.3, 1.0, 1.9]), st.integers(0, 2**32))
def test_a_token_of_the_whole_vocabulary_lies_at_its_uniform_number(
    logits: NDArray[np.float32], temperature: float, seed: int
) -> None:
    p = SamplingParams(max_tokens=1, temperature=temperature)
    for i, (row, token) in enumerate(zip(logits, draw(logits, p, seed), strict=True)):
        with np.errstate(over="ignore"):
            weights = np.exp((row.astype(np.float64) - row.max()) / temperature)
        ends = np.cumsum(weights) / weights.sum()
        uniform = generators(1, seed + i)[0].random()
        assert token is not None
        assert weights[token] > 0
        assert ends[token] - weights[token] / weights.sum() - 1e-6 <= uniform <= ends[token] + 1e-6


def test_tokens_are_drawn_as_often_as_the_truncated_distribution_says() -> None:
    row = np.array([[1.0, 2.0, 0.5, 2.0, -1.0, 0.0]], np.float32)
    p = SamplingParams(max_tokens=1, temperature=0.8, top_k=4, top_p=0.9)
    generator = generators(1)
    history = [History(p, ())]
    draws = [sample(row, [p], generator, history)[0] for _ in range(20_000)]
    oracle = kept(row[0], p)
    total = sum(weight for _, weight in oracle)
    for id_, weight in oracle:
        expected = weight / total
        error = 5 * np.sqrt(expected * (1 - expected) / len(draws))  # five standard deviations
        assert abs(draws.count(id_) / len(draws) - expected) < error
    assert set(draws) == {i for i, _ in oracle}


def test_a_row_without_usable_numbers_gives_no_token_and_leaves_its_neighbour_alone() -> None:
    logits = np.array([[np.nan, 1.0], [0.0, 1.0], [-np.inf, -np.inf]], np.float32)
    greedy = SamplingParams(max_tokens=1, temperature=0.0)
    warm = SamplingParams(max_tokens=1)
    histories = [History(greedy, ())] * 3
    assert sample(logits, [greedy, greedy, warm], generators(3), histories) == [None, 1, None]
