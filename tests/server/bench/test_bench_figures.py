"""Runs become figures."""

import pytest

from server.bench.figures import figures, over_repeats
from server.bench.work import Run, Step, prompts


def run(seconds: float = 2.0, rss: int = 100) -> Run:
    steps = [
        Step(decode_rows=0, prefill_rows=8, seconds=9.0, model_seconds=1.0),
        Step(decode_rows=1, prefill_rows=4, seconds=9.0, model_seconds=1.0),
        Step(decode_rows=2, prefill_rows=0, seconds=0.3, model_seconds=0.2),
        Step(decode_rows=2, prefill_rows=0, seconds=0.5, model_seconds=0.3),
        Step(decode_rows=1, prefill_rows=0, seconds=9.0, model_seconds=1.0),
    ]
    return Run(seconds, 6, [[0.5, 0.7, 1.0], [0.7, 1.1, 2.0]], steps, rss, rss // 2)


def test_the_rate_is_of_all_requests_together() -> None:
    assert figures(run()).rate == pytest.approx(3.0)


def test_latencies_are_over_all_requests_and_gaps() -> None:
    found = figures(run())
    assert found.ttft == pytest.approx(0.6)
    assert found.itl == pytest.approx(0.35)
    assert found.itl_p99 is not None
    assert 0.85 < found.itl_p99 <= 0.9


def test_only_steps_in_which_every_request_decodes_count() -> None:
    found = figures(run())
    assert found.step == pytest.approx(0.4)
    assert found.python == pytest.approx(0.15)


def test_what_cannot_be_seen_of_a_contender_is_none() -> None:
    found = figures(Run(1.0, 1, [[0.5]]))
    assert (found.step, found.python, found.itl, found.itl_p99) == (None, None, None, None)


def test_repeats_give_medians_and_the_most_memory() -> None:
    merged = over_repeats([figures(run(2.0, 100)), figures(run(1.0, 300)), figures(run(6.0, 200))])
    assert merged.rate == pytest.approx(3.0)
    assert (merged.rss, merged.anonymous) == (300, 150)


def test_repeats_without_a_figure_have_no_median_of_it() -> None:
    assert over_repeats([figures(Run(1.0, 1, [[0.5]]))]).step is None


def test_prompts_differ_within_a_run_and_between_runs_and_come_again_from_the_same_seed() -> None:
    ids = range(1000)
    one, other = prompts(ids, 16, 20, "a"), prompts(ids, 16, 20, "b")
    assert {len(prompt) for prompt in one} == {20}
    assert len({tuple(prompt) for prompt in [*one, *other]}) == 32
    assert prompts(ids, 16, 20, "a") == one
