"""The promise: a request's logits are those it gets alone, bit for bit, whatever shares its steps and its memory.

On the real default model, for every kind of cache. In random schedules prompts are cut anyhow, requests make way and
are prefilled again, their own tokens too, and what others computed is shared, be it by prefill or by decode.
`INVARIANCE_SCHEDULES=5000` runs more schedules than CI does.
"""

import os
import sys
from collections.abc import Iterator
from dataclasses import dataclass, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from scheduler.config import EngineConfig
from scheduler.engine import PackedEngine
from scheduler.model.importing import ImportOptions
from scheduler.model.session import PackedSession
from scheduler.model.spec import ModelSpec
from scheduler.params import SamplingParams
from scheduler.request import Request
from tests.conftest import default_packed
from tests.scheduler.recorder import Recorder

SCHEDULES = int(os.environ.get("INVARIANCE_SCHEDULES", "200"))
CACHES = ("float32", "float16", "int8")
CONFIG = EngineConfig(slots=8, context=2048, step_rows=512, threads=2, prefix_reuse=False)
LENGTHS = [1, 2, 3, 5, 17, 31, 32, 33, 60, 64, 65, 100, 128, 129, 200, 257, 511, 1025]
STEMS, TAILS = (1, 33, 100), (1, 2, 17, 40)

Logits = list[NDArray[np.float32]]


@dataclass(frozen=True)
class Job:
    """A request to be sent in any company."""

    prompt: tuple[int, ...]
    params: SamplingParams

    @property
    def id(self) -> str:
        return f"{len(self.prompt)} tokens, {self.params.seed}"

    @property
    def longest(self) -> int:
        return len(self.prompt) + self.params.max_tokens


def job(prompt: list[int], count: int, seed: int) -> Job:
    return Job(tuple(prompt), SamplingParams(max_tokens=count, temperature=0.0 if seed % 2 else 1.2, seed=seed))


def texts(rng: np.random.Generator) -> Iterator[Job]:
    """Prompts of all lengths, and some that begin alike, with answers long enough to outgrow a small budget."""
    for seed, length in enumerate(LENGTHS):
        yield job(rng.integers(17, 49_000, length).tolist(), 4, seed)
    text = rng.integers(17, 49_000, max(STEMS)).tolist()
    for seed, (stem, tail) in enumerate((stem, tail) for stem in STEMS for tail in TAILS):
        yield job([*text[:stem], *rng.integers(17, 49_000, tail).tolist()], 16, 100 + seed)


class Room:
    """A session, and what each job gets alone in it."""

    def __init__(self, session: PackedSession) -> None:
        self.session = session
        self.alone: dict[Job, Logits] = {}
        self.preempted = self.cached = 0

    def add(self, one: Job) -> list[int]:
        """Run a job alone, its prompt in one piece; its tokens."""
        tokens: list[int] = []
        recorder = Recorder(self.session)
        engine = PackedEngine(recorder, replace(CONFIG, step_rows=CONFIG.context))
        engine.add(Request(one.id, one.prompt, one.params))
        while not engine.idle:
            tokens += [token for event in engine.step().events for token in event.tokens]
        self.alone[one] = recorder.seen[one.id]
        return tokens

    def run(self, arrivals: dict[Job, int], config: EngineConfig) -> dict[str, Logits]:
        """All jobs, each from its arrival step on."""
        recorder = Recorder(self.session)
        engine = PackedEngine(recorder, config)
        step = 0
        while step <= max(arrivals.values()) or not engine.idle:
            for one, at in arrivals.items():
                if at == step:
                    engine.add(Request(one.id, one.prompt, one.params))
            report = engine.step()
            engine.check()
            self.preempted += report.preempted
            self.cached += sum(event.summary.cached_tokens for event in report.events if event.summary)
            step += 1
        return recorder.seen


@pytest.fixture(scope="module", params=CACHES)
def room(request: pytest.FixtureRequest) -> Iterator[Room]:
    spec = ModelSpec.from_folder(default_packed(ImportOptions(kv_cache=request.param)))
    session = PackedSession(spec, CONFIG)
    room, rng = Room(session), np.random.default_rng(7)
    for seed, one in enumerate(texts(rng)):
        answer = room.add(one)
        if len(answer) > 4:  # a next turn, which begins with what decode has written
            room.add(job([*one.prompt, *answer, *rng.integers(17, 49_000, 1 + seed).tolist()], 4, 200 + seed))
    yield room
    session.close()


def schedule(rng: np.random.Generator, jobs: list[Job]) -> tuple[dict[Job, int], EngineConfig]:
    """Some of the jobs with the steps they arrive at, and a room for them.

    Half the time they are of all lengths, half the time those that begin alike, in a room that is tight.
    """
    tight = bool(rng.integers(0, 2))
    jobs = [one for one in jobs if one.params.seed >= 100] if tight else jobs
    weights = 1 / (np.array([len(one.prompt) for one in jobs]) + 30.0)  # long prompts take their turn, short ones most
    count = rng.integers(4, 9) if tight else rng.integers(2, 7)
    chosen = rng.choice(len(jobs), count, replace=False, p=None if tight else weights / weights.sum())
    arrivals = {jobs[i]: int(rng.integers(0, 20)) for i in chosen}
    config = replace(
        CONFIG,
        slots=int(rng.choice([2, 4, 8])),
        step_rows=int(rng.choice([16, 17, 31, 64, 100, 128, 256, 300, 512])),
        tokens=max(one.longest for one in arrivals) + int(rng.choice([0, 20, 60])) if tight else sys.maxsize,
        prefix_reuse=bool(rng.integers(0, 2)),
    )
    return arrivals, config


def test_logits_are_bit_identical_in_random_schedules(room: Room) -> None:
    jobs = list(room.alone)
    for number in range(-(-SCHEDULES // len(CACHES))):
        arrivals, config = schedule(np.random.default_rng(number), jobs)
        seen = room.run(arrivals, config)
        for one in arrivals:
            for token, (together, alone) in enumerate(zip(seen[one.id], room.alone[one], strict=True)):
                assert np.array_equal(together, alone), (
                    f"schedule {number}: token {token} of {one.id} differs by {np.abs(together - alone).max()} "
                    f"in steps of {config.step_rows} rows"
                )
    assert room.preempted > 0
    assert room.cached > 0
