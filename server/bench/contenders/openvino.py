"""OpenVINO GenAI's ContinuousBatchingPipeline as a library, without a server. It reads GGUF files itself."""

import os
from time import perf_counter

import numpy as np
import openvino
import openvino_genai

from server.bench.child import Setup
from server.bench.work import Run, Step, Work

CACHE_GIB = 2
"""Of KV cache. Without a size the pipeline begins small and copies its cache whenever it grows."""


class OpenVinoContender:
    """A pipeline, stepped by hand so that each token's arrival is seen."""

    def __init__(self, setup: Setup) -> None:
        self.pid = os.getpid()
        scheduler = openvino_genai.SchedulerConfig()
        scheduler.cache_size = CACHE_GIB
        scheduler.max_num_seqs = setup.concurrency
        properties = {"INFERENCE_NUM_THREADS": setup.threads}
        self._pipeline = openvino_genai.ContinuousBatchingPipeline(setup.path, scheduler, "CPU", properties)

    def run(self, work: Work) -> Run:
        """Add every request and step until all have their tokens."""
        config = openvino_genai.GenerationConfig()
        config.max_new_tokens, config.ignore_eos, config.do_sample = work.new_tokens, True, False
        begin = perf_counter()
        tensors = [openvino.Tensor(np.array([prompt], np.int64)) for prompt in work.prompts]
        handles = [self._pipeline.add_request(number, tensor, config) for number, tensor in enumerate(tensors)]
        arrivals: list[list[float]] = [[] for _ in handles]
        steps, tokens = list[Step](), 0
        while self._pipeline.has_non_finished_requests():
            decoding = sum(map(bool, arrivals))
            before = perf_counter()
            self._pipeline.step()
            now = perf_counter()
            steps.append(Step(decoding, len(handles) - decoding, now - before))
            for handle, moments in zip(handles, arrivals, strict=True):
                if handle.can_read():
                    tokens += sum(len(output.generated_ids) for output in handle.read().values())
                    moments.append(now - begin)
        return Run(perf_counter() - begin, tokens, arrivals, steps)

    def close(self) -> None:
        """Give the model back."""
        del self._pipeline
