"""The promise: a request's logits are those it gets alone, bit for bit, whatever shares its steps.

On the real default model with int8 linear layers. `INVARIANCE_SCHEDULES=5000` runs more schedules than CI does.
"""

import os
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from numpy.typing import NDArray

from scheduler.config import EngineConfig
from scheduler.engine import PackedEngine
from scheduler.model.session import PackedSession
from scheduler.model.spec import ModelSpec
from scheduler.params import SamplingParams
from scheduler.request import Request
from tests.scheduler.recorder import Recorder

SCHEDULES = int(os.environ.get("INVARIANCE_SCHEDULES", "200"))
CONFIG = EngineConfig(slots=8, context=2048, step_rows=512, threads=2, prefix_reuse=False)
LENGTHS = [1, 2, 3, 5, 17, 33, 60, 64, 100, 128, 129, 200, 255, 257, 300, 511, 640, 1025, 2000]
NEW_TOKENS = 6


@dataclass(frozen=True)
class Job:
    """A request to be sent in any company."""

    id: str
    prompt: tuple[int, ...]
    params: SamplingParams

    def request(self) -> Request:
        return Request(self.id, self.prompt, self.params)


@pytest.fixture(scope="module")
def session(default_model: Path) -> Iterator[PackedSession]:
    session = PackedSession(ModelSpec.from_folder(default_model), CONFIG)
    yield session
    session.close()


@pytest.fixture(scope="module")
def jobs() -> list[Job]:
    rng = np.random.default_rng(7)
    return [
        Job(
            f"{i}",
            tuple(rng.integers(17, 49_000, length).tolist()),
            SamplingParams(max_tokens=NEW_TOKENS, temperature=0.0 if i % 2 else 1.2, seed=i),
        )
        for i, length in enumerate(LENGTHS)
    ]


def run(session: PackedSession, arrivals: dict[str, int], jobs: list[Job], step_rows: int) -> Recorder:
    """All jobs, each from its arrival step on, in steps of so many rows."""
    recorder = Recorder(session)
    engine = PackedEngine(recorder, replace(CONFIG, step_rows=step_rows))
    step = 0
    while step <= max(arrivals.values()) or not engine.idle:
        for job in jobs:
            if arrivals[job.id] == step:
                engine.add(job.request())
        engine.step()
        step += 1
    return recorder


@pytest.fixture(scope="module")
def tight_jobs() -> list[Job]:
    """Prompts that begin alike, with answers long enough to outgrow a small budget."""
    rng = np.random.default_rng(8)
    text = rng.integers(17, 49_000, 300).tolist()
    return [
        Job(
            f"{stem}+{tail}",
            (*text[:stem], *rng.integers(17, 49_000, tail).tolist()),
            SamplingParams(max_tokens=40, temperature=0.0 if tail % 2 else 1.2, seed=tail),
        )
        for stem in (1, 33, 200)
        for tail in (1, 2, 17, 60)
    ]


@pytest.mark.parametrize("reuse", [True, False])
def test_logits_are_bit_identical_with_preemption_and_reuse(
    session: PackedSession, tight_jobs: list[Job], reuse: bool
) -> None:
    solo = {job.id: run(session, {job.id: 0}, [job], 512).seen[job.id] for job in tight_jobs}
    preempted = cached = 0
    for schedule in range(max(SCHEDULES // 100, 2)):  # each takes a while
        rng = np.random.default_rng(schedule)
        config = replace(CONFIG, step_rows=int(rng.choice([16, 33, 128])), tokens=int(rng.choice([301, 400, 600])))
        recorder = Recorder(session)
        engine = PackedEngine(recorder, replace(config, prefix_reuse=reuse))
        for job in rng.permutation(np.array(tight_jobs, object)):
            engine.add(job.request())
            for report in (engine.step() for _ in range(rng.integers(0, 9))):
                preempted += report.preempted
                cached += sum(event.summary.cached_tokens for event in report.events if event.summary)
        while not engine.idle:
            report = engine.step()
            engine.check()
            preempted += report.preempted
            cached += sum(event.summary.cached_tokens for event in report.events if event.summary)
        for job in tight_jobs:
            assert len(recorder.seen[job.id]) == len(solo[job.id])
            assert all(map(np.array_equal, recorder.seen[job.id], solo[job.id])), f"schedule {schedule}: {job.id}"
    assert preempted > 0
    assert (cached > 0) == reuse


@pytest.fixture(scope="module")
def alone(session: PackedSession, jobs: list[Job]) -> dict[str, list[NDArray[np.float32]]]:
    return {job.id: run(session, {job.id: 0}, [job], 512).seen[job.id] for job in jobs}


def test_logits_are_bit_identical_in_random_schedules(
    session: PackedSession, jobs: list[Job], alone: dict[str, list[NDArray[np.float32]]]
) -> None:
    for schedule in range(SCHEDULES):
        rng = np.random.default_rng(schedule)
        weights = 1 / (np.array(LENGTHS) + 30.0)  # long prompts take their turn, short ones take most
        chosen = [jobs[i] for i in rng.choice(len(jobs), rng.integers(2, 9), replace=False, p=weights / weights.sum())]
        arrivals = {job.id: int(rng.integers(0, 12)) for job in chosen}
        step_rows = int(rng.choice([16, 17, 31, 64, 100, 128, 256, 300, 512]))
        recorder = run(session, arrivals, chosen, step_rows)
        for job in chosen:
            for token, (together, solo) in enumerate(zip(recorder.seen[job.id], alone[job.id], strict=True)):
                assert np.array_equal(together, solo), (
                    f"schedule {schedule}: token {token} of the prompt of {len(job.prompt)} differs by "
                    f"{np.abs(together - solo).max()} in steps of {step_rows} rows"
                )
