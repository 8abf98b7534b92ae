"""paceline's engine alone: the step loop without a server around it."""

import os
from time import perf_counter

from scheduler.config import EngineConfig
from scheduler.engine import PackedEngine, StepReport
from scheduler.model.kernels import library
from scheduler.model.session import PackedSession
from scheduler.model.spec import ModelSpec
from scheduler.params import SamplingParams
from scheduler.request import Finish, Request
from server.bench.child import Setup
from server.bench.work import Run, Step, Work


class EngineContender:
    """Drives a PackedEngine in the room that `paceline serve` would give it."""

    def __init__(self, setup: Setup) -> None:
        self.pid = os.getpid()
        self.engine = open_engine(setup)

    def run(self, work: Work) -> Run:
        """Step until every request has its tokens."""
        begin = perf_counter()
        for number, prompt in enumerate(work.prompts):
            self.engine.add(request(str(number), prompt, work.new_tokens))
        arrivals: list[list[float]] = [[] for _ in work.prompts]
        steps, tokens = list[Step](), 0
        while not self.engine.idle:
            report = self.engine.step()
            now = perf_counter() - begin
            steps.append(Step(report.decode_rows, report.prefill_rows, report.step_seconds, report.model_seconds))
            check(report)
            for event in report.events:
                arrivals[int(event.id)].append(now)
                tokens += len(event.tokens)
        return Run(perf_counter() - begin, tokens, arrivals, steps)

    def close(self) -> None:
        """Give the model back."""
        self.engine.close()


def open_engine(setup: Setup) -> PackedEngine:
    """Load the packed folder."""
    library.select(setup.instruction_set)
    spec = ModelSpec.from_folder(setup.folder)
    config = EngineConfig(
        slots=setup.concurrency,
        context=setup.context,
        step_rows=setup.step_rows,
        threads=setup.threads,
        prefix_reuse=False,  # prompts come again and again, and shall be computed each time
    )
    return PackedEngine(PackedSession(spec, config), config)


def request(id_: str, prompt: list[int], new_tokens: int) -> Request:
    """A greedy request that no token ends."""
    return Request(id_, tuple(prompt), SamplingParams(max_tokens=new_tokens, temperature=0.0))


def check(report: StepReport) -> None:
    """Raise what a request ended with, if it was not its length."""
    for event in report.events:
        if event.finish is Finish.FAILED and event.error is not None:
            raise event.error
