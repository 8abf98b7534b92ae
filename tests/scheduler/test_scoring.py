import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from scheduler.batch import Batch, Output
from scheduler.config import EngineConfig
from scheduler.engine import PackedEngine
from scheduler.errors import RequestFailed
from scheduler.logprobs import TokenLogprobs
from scheduler.model.session import PackedSession
from scheduler.model.spec import ModelSpec
from scheduler.params import SamplingParams
from scheduler.plan import MOST_SCORED
from scheduler.request import Event, Finish, Request
from tests.conftest import Packed
from tests.scheduler.fake_model import VOCABULARY, FakeModel, next_token, solo
from tests.scheduler.test_engine import engine

LIKELY = 5.0 - math.log(math.exp(5.0) + VOCABULARY - 1)  # the fake model gives one token 5 and the others 0
UNLIKELY = LIKELY - 5.0


def scored(id_: str, prompt: list[int], count: int, top: int = 0) -> Request:
    return Request(id_, tuple(prompt), SamplingParams(max_tokens=count, temperature=0.0, prompt_logprobs=top))


def run(packed: PackedEngine) -> dict[str, list[Event]]:
    events: dict[str, list[Event]] = {}
    while not packed.idle:
        for event in packed.step().events:
            events.setdefault(event.id, []).append(event)
        packed.check()
    return events


prompts = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=70)


@given(st.lists(st.tuples(prompts, st.integers(0, 4), st.booleans()), min_size=1, max_size=6), st.integers(1, 64))
def test_every_prompt_token_after_the_first_is_scored_once_however_it_is_cut(
    asked: list[tuple[list[int], int, bool]], step_rows: int
) -> None:
    packed, _ = engine(slots=3, step_rows=step_rows)
    for i, (prompt, count, scores) in enumerate(asked):
        params = SamplingParams(max_tokens=count, temperature=0.0, prompt_logprobs=0 if scores else None)
        packed.add(Request(f"{i}", tuple(prompt), params))
    events = run(packed)
    for i, (prompt, count, scores) in enumerate(asked):
        first, *rest = events[f"{i}"]
        assert not any(event.prompt_logprobs for event in rest)
        expected = [LIKELY if next_token(prompt[:k]) == prompt[k] else UNLIKELY for k in range(1, len(prompt))]
        assert [s.chosen.token for s in first.prompt_logprobs] == (prompt[1:] if scores else [])
        np.testing.assert_allclose([s.chosen.logprob for s in first.prompt_logprobs], expected if scores else [])
        assert [token for event in events[f"{i}"] for token in event.tokens] == solo(prompt, count)
        assert events[f"{i}"][-1].finish is Finish.LENGTH


def test_new_tokens_are_reported_beside_the_likeliest_only_where_asked_for() -> None:
    packed, _ = engine()
    for name, count in (("none", None), ("zero", 0), ("two", 2)):
        params = SamplingParams(max_tokens=3, temperature=0.0, logprobs=count)
        packed.add(Request(name, (1, 2, 3), params))
    events = run(packed)
    assert not any(event.logprobs for event in events["none"])
    for name, count in (("zero", 0), ("two", 2)):
        for event in events[name]:
            (report,) = event.logprobs
            assert report.chosen.token == event.tokens[0]
            assert abs(report.chosen.logprob - LIKELY) < 1e-6
            assert len(report.top) == count


def test_a_scored_prompt_without_numbers_ends_that_request_alone() -> None:
    packed, model = engine()
    packed.add(scored("a", [1, 2, 3], 2))
    packed.add(scored("b", [4, 5, 6], 2))
    model.spoil = 2  # rows 0 and 1 sample, rows 2 and 3 score a
    events = run(packed)
    assert isinstance(events["a"][-1].error, RequestFailed)
    assert [token for event in events["b"] for token in event.tokens] == solo([4, 5, 6], 2)


class Widest(FakeModel):
    """Remembers the most rows that it was ever asked for."""

    rows = 0

    def run(self, batch: Batch, temperatures: NDArray[np.float32]) -> Output:
        self.rows = max(self.rows, len(batch.logit_rows))
        return super().run(batch, temperatures)


def test_long_prompts_are_scored_in_steps_of_bounded_width_and_hold_up_nobody() -> None:
    config = EngineConfig(slots=4, context=2000, step_rows=1500, threads=1)
    model = Widest(4, config.context)
    packed = PackedEngine(model, config)
    packed.add(scored("a", [1] * 1900, 1))
    packed.add(scored("b", [1] * 1900, 1))
    packed.add(Request("c", (1, 2), SamplingParams(max_tokens=1, temperature=0.0)))
    assert [event.id for event in packed.step().events] == ["c"]
    assert {id_: len(found[0].prompt_logprobs) for id_, found in run(packed).items()} == {"a": 1899, "b": 1899}
    assert model.rows <= MOST_SCORED + 4


@pytest.mark.parametrize("name", ["llama-int4", "qwen3-int4"])
def test_scores_on_a_real_model_do_not_depend_on_the_cut(packed: Packed, name: str) -> None:
    spec = ModelSpec.from_folder(packed(name))
    prompt = [(5 * i + 3) % spec.vocab_size for i in range(90)]

    def scores(step_rows: int) -> list[float]:
        config = EngineConfig(slots=2, context=spec.context, step_rows=step_rows, threads=1)
        session = PackedSession(spec, config)
        served = PackedEngine(session, config)
        served.add(scored("a", prompt, 1, 2))
        found: list[TokenLogprobs] = [s for events in run(served).values() for e in events for s in e.prompt_logprobs]
        session.close()
        return [r.logprob for s in found for r in (s.chosen, *s.top)]

    whole = scores(128)
    assert len(whole) == 3 * 89
    for step_rows in (16, 21, 50):
        np.testing.assert_allclose(scores(step_rows), whole, atol=1e-4)
