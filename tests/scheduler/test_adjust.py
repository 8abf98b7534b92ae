import numpy as np
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from scheduler.adjust import History, adjusted
from scheduler.batch import Output
from scheduler.params import SamplingParams
from scheduler.sampling import sample
from tests.scheduler.outputs import output_of

VOCABULARY = 40
token_ids = st.integers(0, VOCABULARY - 1)
params = st.builds(
    lambda frequency, presence, repetition, bias, least, ends: SamplingParams(
        max_tokens=9,
        temperature=0.0,
        min_tokens=least,
        frequency_penalty=frequency,
        presence_penalty=presence,
        repetition_penalty=repetition,
        logit_bias=tuple(bias.items()),
        end_tokens=ends,
    ),
    st.sampled_from([0.0, 0.5, -2.0]),
    st.sampled_from([0.0, 1.5, -0.3]),
    st.sampled_from([1.0, 1.3, 0.2, 10.0]),
    st.dictionaries(token_ids, st.sampled_from([-100.0, -1.0, 0.0, 2.5, 100.0]), max_size=4),
    st.integers(0, 6),
    st.frozensets(token_ids, max_size=3),
)


def logits(seed: int, rows: int = 1) -> NDArray[np.float32]:
    return np.random.default_rng(seed).normal(scale=4, size=(rows, VOCABULARY)).astype(np.float32)


def history(p: SamplingParams, prompt: list[int], generated: list[int]) -> History:
    made = History(p, prompt)
    for token in generated:
        made.add(token)
    return made


def naive(row: NDArray[np.float32], p: SamplingParams, prompt: list[int], generated: list[int]) -> list[float]:
    """Each published formula, token by token."""
    out = []
    for token, logit in enumerate(row.tolist()):
        value = logit + dict(p.logit_bias).get(token, 0.0)
        if token in prompt or token in generated:
            value = value / p.repetition_penalty if value > 0 else value * p.repetition_penalty
        count = generated.count(token)
        value -= p.frequency_penalty * count + p.presence_penalty * (count > 0)
        out.append(float("-inf") if len(generated) < p.min_tokens and token in p.end_tokens else value)
    return out


@given(st.integers(0, 2**32), params, st.lists(token_ids, max_size=30), st.lists(token_ids, max_size=50))
def test_every_adjustment_follows_its_formula(
    seed: int, p: SamplingParams, prompt: list[int], generated: list[int]
) -> None:
    row = logits(seed)[0]
    before = row.copy()
    after = adjusted(row, p, history(p, prompt, generated))
    np.testing.assert_allclose(after, naive(row, p, prompt, generated), rtol=1e-5, atol=1e-5)
    np.testing.assert_array_equal(row, before)


def unweighed(rows: NDArray[np.float32]) -> Output:
    """A run's output without masses: rows that are adjusted are weighed afterwards."""
    return output_of(rows, np.zeros(len(rows), np.float32))


@given(st.integers(0, 2**32), st.lists(st.tuples(params, st.lists(token_ids, max_size=9)), min_size=1, max_size=5))
def test_an_adjusted_row_is_sampled_in_company_as_it_is_alone(
    seed: int, asked: list[tuple[SamplingParams, list[int]]]
) -> None:
    rows = logits(seed, len(asked))
    histories = [history(p, generated, generated) for p, generated in asked]
    generators = [np.random.default_rng(i) for i in range(len(asked))]
    together = sample(unweighed(rows), [p for p, _ in asked], generators, histories)
    for i, (p, generated) in enumerate(asked):
        alone = sample(unweighed(rows[i : i + 1]), [p], [np.random.default_rng(i)], [history(p, generated, generated)])
        assert alone == [together[i]]
        assert together[i] == int(np.argmax(adjusted(rows[i], p, histories[i])))


def test_the_hardest_repetition_penalty_still_gives_a_token() -> None:
    p = SamplingParams(max_tokens=1, temperature=1.0, repetition_penalty=5e-324)
    row = np.array([[3.0, -1.0, 2.0, 3.0]], np.float32)
    assert sample(unweighed(row), [p], [np.random.default_rng(0)], [history(p, [0, 1, 2], [])])[0] in (0, 2)


def test_tokens_that_were_masked_are_never_drawn() -> None:
    p = SamplingParams(max_tokens=9, min_tokens=1, end_tokens=frozenset({0, 2}), temperature=2.0)
    row, generator = np.array([[9.0, 0.0, 9.0]], np.float32), np.random.default_rng(0)
    given_ = unweighed(row)
    assert {sample(given_, [p], [generator], [History(p, ())])[0] for _ in range(200)} == {1}
