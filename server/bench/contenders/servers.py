"""Servers of others, where they are installed: with the same threads and room, and no prompt kept for the next run."""

import os
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, ClassVar

import msgspec
from tokenizers import Tokenizer

from server.bench.child import Setup
from server.bench.contenders.http import HOST, Served
from server.bench.genai_folder import CONFIG
from server.bench.programs import program

NAME = "measured"


class LlamaServer(Served):
    """llama.cpp's server."""

    fields: ClassVar[Mapping[str, object]] = {"cache_prompt": False}

    def command(self, setup: Setup, port: int) -> list[str]:
        """A slot for each request; the context is that of all slots together."""
        room = ["--parallel", setup.concurrency, "--ctx-size", setup.concurrency * setup.context]
        room += ["--threads", setup.threads, "--threads-batch", setup.threads]
        place = ["--host", HOST, "--port", port]
        return [program("llama-server"), "--model", setup.path, *map(str, room + place)]


class Vllm(Served):
    """vLLM's server on the CPU."""

    fields: ClassVar[Mapping[str, object]] = {"model": NAME}

    def command(self, setup: Setup, port: int) -> list[str]:
        """Without its prefix cache, since prompts shall be computed each time."""
        room = ["--max-num-seqs", setup.concurrency, "--max-model-len", setup.context, "--no-enable-prefix-caching"]
        place = ["--host", HOST, "--port", port, "--served-model-name", NAME]
        return [program("vllm"), "serve", setup.path, *map(str, room + place)]

    def environ(self, setup: Setup) -> dict[str, str]:
        """It is told its threads by the cores they run on; and 2 GiB of cache."""
        cores = sorted(os.sched_getaffinity(0))[: setup.threads]
        return {"VLLM_CPU_OMP_THREADS_BIND": ",".join(map(str, cores)), "VLLM_CPU_KVCACHE_SPACE": "2"}


class OnnxGenai(Served):
    """The server of onnx-genai. It takes prompts as text alone, and ends an answer where the model does."""

    ready = "/v1/models"
    fields: ClassVar[Mapping[str, object]] = {"model": NAME}
    least = 1

    def __init__(self, setup: Setup) -> None:
        self._tokenizer = Tokenizer.from_file(str(setup.folder / "tokenizer.json"))
        with tempfile.TemporaryDirectory(prefix="paceline-bench-") as folder:
            self._shared = Path(folder)
            shared_buffers(setup.folder, self._shared, setup.context)
            super().__init__(setup)  # by its end all files are open

    def command(self, setup: Setup, port: int) -> list[str]:
        """One model, on the CPU."""
        room = ["--max-batch", setup.concurrency, "--cpu-cores", setup.threads, "--device", "cpu"]
        place = ["--addr", f"{HOST}:{port}", "--model-id", NAME]
        return [program("onnx-genai"), "serve", str(self._shared), *map(str, room + place)]

    def prompt(self, tokens: list[int]) -> str:
        """The text that the tokens are."""
        return str(self._tokenizer.decode(tokens, skip_special_tokens=False))


def shared_buffers(source: Path, folder: Path, context: int) -> None:
    """The same model in a folder that allows past and present in one buffer, without which nothing is batched.

    A buffer is reserved for each request, of the context's length.
    """
    for path in source.iterdir():
        if path.name != CONFIG:
            (folder / path.name).symlink_to(path.resolve())
    config: dict[str, Any] = msgspec.json.decode((source / CONFIG).read_bytes())
    config["model"]["context_length"] = context
    config.setdefault("search", {})["past_present_share_buffer"] = True
    (folder / CONFIG).write_bytes(msgspec.json.encode(config))
