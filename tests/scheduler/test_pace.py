import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.pace import LEAST_EXCESS, MOST_EXCESS, Load, Pace
from scheduler.plan import Pending

loads = st.builds(
    Load,
    st.integers(0, 32),
    st.integers(0, 100_000),
    st.integers(0, 512),
    st.integers(0, 2_000_000),
)
machines = st.tuples(
    st.floats(0.002, 0.3),
    st.floats(1e-4, 5e-3),
    st.floats(1e-4, 5e-3),
    st.floats(0, 1e-6),
    st.floats(0, 1e-6),
)
MACHINE = (0.01, 1e-3, 5e-4, 1e-7, 1e-7)


def truth(load: Load, machine: tuple[float, ...]) -> float:
    return float(np.dot(load.numbers, machine))


def busy(rng: np.random.Generator) -> Load:
    """A step as servers have them: some decode beside a chunk, some do either alone."""
    decode, prefill = rng.integers(0, 33) * rng.integers(0, 2), rng.integers(0, 257) * rng.integers(0, 2)
    before = int(rng.integers(0, 4000)) if prefill else 0
    return Load(int(decode), int(decode * rng.integers(1, 4000)), int(prefill), int(prefill * before))


@given(machines, st.integers(0, 2**32))
def test_after_a_few_hundred_steps_it_knows_a_machine_that_keeps_its_pace(
    machine: tuple[float, ...], seed: int
) -> None:
    rng, pace = np.random.default_rng(seed), Pace()
    for _ in range(300):
        load = busy(rng)
        pace.learn(load, truth(load, machine) * rng.uniform(0.95, 1.05))
    for load in (busy(rng) for _ in range(20)):
        assert pace.seconds(load) == pytest.approx(truth(load, machine), rel=0.25)


@given(st.lists(st.tuples(loads, st.floats(0, 60)), max_size=60), loads)
def test_whatever_it_has_seen_more_work_takes_longer_and_nothing_takes_no_time(
    seen: list[tuple[Load, float]], load: Load
) -> None:
    pace = Pace()
    for past, seconds in seen:
        pace.learn(past, seconds)
    more = replace(load, decode_rows=load.decode_rows + 1, prefill_rows=load.prefill_rows + 1)
    assert 0 < pace.seconds(load) < pace.seconds(more) < math.inf


@given(loads, st.integers(0, 8000), st.floats(0.001, 2))
def test_the_rows_that_it_grants_meet_the_target_and_one_more_would_not(load: Load, before: int, target: float) -> None:
    pace = Pace()
    rows = pace.prefill_rows(load, before, target)

    def with_rows(count: int) -> float:
        whole = replace(
            load,
            prefill_rows=load.prefill_rows + count,
            prefill_pairs=load.prefill_pairs + count * before,
        )
        return pace.seconds(whole)

    if rows >= 0:
        assert with_rows(rows) <= target + 1e-9
        assert with_rows(rows + 1) > target - 1e-9


def test_a_machine_that_slows_down_is_believed_within_some_steps() -> None:
    rng, pace = np.random.default_rng(3), Pace()
    for slower in (1, 3):
        for _ in range(400):
            load = busy(rng)
            pace.learn(load, slower * truth(load, MACHINE))
    load = Load(8, 8000, 100, 0)
    assert pace.seconds(load) == pytest.approx(3 * truth(load, MACHINE), rel=0.25)


def test_one_step_that_takes_longer_is_reckoned_with_at_once_and_forgotten_slowly() -> None:
    rng, pace = np.random.default_rng(4), Pace()
    for _ in range(300):
        load = busy(rng)
        pace.learn(load, truth(load, MACHINE))
    running = [Pending(f"{i}", i, 500, 1, generated=True) for i in range(4)] + [Pending("long", 4, 1000, 7000)]
    calm, before = pace.rows_beside(running, 0.2), pace.excess
    load = Load(4, 2000, calm, 1000 * calm)
    pace.learn(load, 1.5 * truth(load, MACHINE))
    wary = pace.rows_beside(running, 0.2)
    assert pace.seconds(Load(4, 2000, wary, 1000 * wary)) * 1.4 < 0.2
    after = pace.excess
    pace.learn(load, truth(load, MACHINE))
    assert before < pace.excess < after
    for _ in range(300):
        pace.learn(load, truth(load, MACHINE))
    assert calm * 0.9 < pace.rows_beside(running, 0.2) <= calm * 1.1


@given(st.lists(st.tuples(loads, st.floats(0, 60)), max_size=60))
def test_however_irregular_the_steps_some_of_the_target_is_planned_for(seen: list[tuple[Load, float]]) -> None:
    pace = Pace()
    for load, seconds in seen:
        pace.learn(load, seconds)
        assert LEAST_EXCESS <= pace.excess <= MOST_EXCESS
