"""onnxruntime-genai as most use it, a Generator for each request in a thread of its own; and one static batch.

Both get what the engine gets: the same threads, the same prompts, no end before the last token.
"""

import json
import os
from concurrent.futures import ThreadPoolExecutor
from time import perf_counter

import numpy as np
import onnxruntime_genai as og

from server.bench.child import Setup
from server.bench.work import Run, Step, Work


class _Genai:
    """A loaded model of onnxruntime-genai."""

    def __init__(self, setup: Setup) -> None:
        self.pid = os.getpid()
        config = og.Config(str(setup.folder))
        threads = {"intra_op_num_threads": setup.threads}
        config.overlay(json.dumps({"model": {"decoder": {"session_options": threads}}}))
        self._model = og.Model(config)

    def _generator(self, prompts: list[list[int]], new_tokens: int) -> og.Generator:
        """A greedy generator of equal prompts that no token ends: the least length is the most."""
        params = og.GeneratorParams(self._model)
        length = len(prompts[0]) + new_tokens
        params.set_search_options(do_sample=False, batch_size=len(prompts), min_length=length, max_length=length)
        generator = og.Generator(self._model, params)
        generator.append_tokens(np.array(prompts, np.int32))
        return generator

    def close(self) -> None:
        """Give the model back."""
        del self._model


class ThreadsContender(_Genai):
    """One Generator per request, each in a thread."""

    def run(self, work: Work) -> Run:
        """Let every thread generate for itself."""
        begin = perf_counter()

        def generate(prompt: list[int]) -> list[float]:
            generator, arrivals = self._generator([prompt], work.new_tokens), list[float]()
            while not generator.is_done():
                generator.generate_next_token()
                arrivals.append(perf_counter() - begin)
            return arrivals

        with ThreadPoolExecutor(len(work.prompts)) as threads:
            arrivals = list(threads.map(generate, work.prompts))
        return Run(perf_counter() - begin, sum(map(len, arrivals)), arrivals)


class BatchContender(_Genai):
    """One Generator for a batch that begins and ends together."""

    def run(self, work: Work) -> Run:
        """Generate for all at once."""
        begin = perf_counter()
        generator = self._generator(work.prompts, work.new_tokens)
        rows, moments, steps = len(work.prompts), list[float](), list[Step]()
        while not generator.is_done():
            before = perf_counter()
            generator.generate_next_token()
            now = perf_counter()
            if moments:  # the first token came of the prefill
                steps.append(Step(rows, 0, now - before))
            moments.append(now - begin)
        return Run(perf_counter() - begin, rows * len(moments), [moments] * rows, steps)
