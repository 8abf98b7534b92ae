from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from scheduler.adjust import History
from scheduler.batch import CANDIDATES, Output
from scheduler.params import SamplingParams
from scheduler.sampling import sample, wanted_temperature
from scheduler.tail import LEAST_TEMPERATURE
from tests.scheduler.outputs import output_of

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


few = st.sampled_from([1, 3, 20, CANDIDATES])
"""How many candidates there are."""


def output(logits: NDArray[np.float32], p: SamplingParams, most: int = CANDIDATES) -> Output:
    """What a run would say; with fewer candidates than a run gives, top_k too goes by the mass."""
    wanted = max(p.temperature, LEAST_TEMPERATURE) if most < p.top_k else wanted_temperature(p, History(p, ()))
    return output_of(logits, np.full(len(logits), wanted, np.float32), most)


def drawn(output: Output, p: SamplingParams, seed: int = 0) -> list[int | None]:
    """Every row with the same parameters and nothing generated yet, each with a generator of its own."""
    count = len(output.logits)
    return sample(output, [p] * count, generators(count, seed), [History(p, ()) for _ in range(count)])


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


@given(rows(), params, few, st.integers(0, 2**32))
def test_a_drawn_token_is_one_that_the_naive_truncation_keeps(
    logits: NDArray[np.float32], p: SamplingParams, most: int, seed: int
) -> None:
    for row, token in zip(logits, drawn(output(logits, p, most), p, seed), strict=True):
        if p.greedy:
            assert token == min(range(len(row)), key=lambda i: (-row[i], i))
        else:
            assert token in [i for i, _ in kept(row, p)]


@given(rows(), params, few, st.integers(0, 2**32))
def test_a_row_is_sampled_in_company_as_it_is_alone(
    logits: NDArray[np.float32], p: SamplingParams, most: int, seed: int
) -> None:
    together = drawn(output(logits, p, most), p, seed)
    alone = [drawn(output(logits[i : i + 1], p, most), p, seed + i)[0] for i in range(len(logits))]
    assert together == alone


@given(rows(), params, few, st.integers(0, 2**32))
def test_a_token_lies_where_its_uniform_number_does_in_the_naive_order(
    logits: NDArray[np.float32], p: SamplingParams, most: int, seed: int
) -> None:
    if p.greedy:
        return
    for i, (row, token) in enumerate(zip(logits, drawn(output(logits, p, most), p, seed), strict=True)):
        order = kept(row, p)
        if p.top_k == 0 and p.top_p == 1.0 and p.min_p == 0.0:  # nothing is left out: behind the candidates it is by id
            order = order[:most] + sorted(order[most:])
        (place,) = [i for i, (id_, _) in enumerate(order) if id_ == token]
        weights = np.array([weight for _, weight in order])
        ends = weights.cumsum() / weights.sum()
        uniform = generators(1, seed + i)[0].random()
        assert weights[place] > 0
        assert ends[place] - weights[place] / weights.sum() - 1e-6 <= uniform <= ends[place] + 1e-6


@given(rows(), params, few, st.integers(0, 2**32))
def test_few_candidates_and_the_whole_row_give_the_same_token(
    logits: NDArray[np.float32], p: SamplingParams, most: int, seed: int
) -> None:
    p = replace(p, top_p=min(p.top_p, 0.999))  # where nothing is left out the order is another
    assert drawn(output(logits, p, most), p, seed) == drawn(output(logits, p, logits.shape[1]), p, seed)


@given(rows(), params, few, st.integers(0, 2**32))
def test_what_the_candidates_decide_reads_no_logits(
    logits: NDArray[np.float32], p: SamplingParams, most: int, seed: int
) -> None:
    whole = output(logits, p, most)
    if not p.greedy:
        cut = p.min_p > 0 or most < p.top_k < logits.shape[1]  # then what is left has to be weighed first
        nucleus = max(len(kept(row, replace(p, top_p=1.0) if cut else p)) for row in logits)
        if nucleus > most or (nucleus == most and cut):
            return
    blind = Output(np.full_like(logits, np.nan), whole.top_ids, whole.top_values, whole.mass)
    assert drawn(blind, p, seed) == drawn(whole, p, seed)


@given(rows(), params, few, st.integers(0, 2**32))
def test_a_row_that_is_changed_by_nothing_is_drawn_from_as_it_was(
    logits: NDArray[np.float32], p: SamplingParams, most: int, seed: int
) -> None:
    biased = replace(p, logit_bias=((0, 0.0),))
    assert drawn(output(logits, biased, most), biased, seed) == drawn(output(logits, p, most), p, seed)


def test_tokens_are_drawn_as_often_as_the_truncated_distribution_says() -> None:
    row = np.array([[1.0, 2.0, 0.5, 2.0, -1.0, 0.0]], np.float32)
    p = SamplingParams(max_tokens=1, temperature=0.8, top_k=4, top_p=0.9)
    generator = generators(1)
    history = [History(p, ())]
    draws = [sample(output(row, p), [p], generator, history)[0] for _ in range(20_000)]
    oracle = kept(row[0], p)
    total = sum(weight for _, weight in oracle)
    for id_, weight in oracle:
        expected = weight / total
        error = 5 * np.sqrt(expected * (1 - expected) / len(draws))  # five standard deviations
        assert abs(draws.count(id_) / len(draws) - expected) < error
    assert set(draws) == {i for i, _ in oracle}


def test_a_row_without_usable_numbers_gives_no_token_and_leaves_its_neighbour_alone() -> None:
    logits = np.array([[np.nan, 1.0], [0.0, 1.0], [-np.inf, -np.inf], [np.nan, 1.0]], np.float32)
    greedy = SamplingParams(max_tokens=1, temperature=0.0)
    warm = SamplingParams(max_tokens=1)
    biased = SamplingParams(max_tokens=1, logit_bias=((0, 1.0),))
    params = [greedy, greedy, warm, biased]
    histories = [History(p, ()) for p in params]
    given_ = output_of(logits, np.array([0, 0, 1, 0], np.float32))
    assert sample(given_, params, generators(4), histories) == [None, 1, None, None]
