"""Random models of a given size: what a step costs depends on the shape of the weights, not on what they say.

Weights are 4-bit blocks as GGUF's Q4_0 has them, made when they are written, some rows at a time. They differ from
layer to layer: equal layers would stay in the processor's cache. The passes are those of an import.
"""

import hashlib
import zlib
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from tokenizers.pre_tokenizers import ByteLevel

from scheduler.model.importing import FORMAT, ImportOptions, Progress
from scheduler.model.importing.blocks import BLOCK, Blocks, Form
from scheduler.model.importing.gguf_blocks import FORMS
from scheduler.model.importing.gguf_source import read_llama
from scheduler.model.importing.importer import import_logical
from scheduler.model.importing.llama_shape import LlamaShape
from scheduler.model.importing.made import damage
from scheduler.model.importing.manifest import SourceRecord
from scheduler.model.importing.target import locked

Floats = npt.NDArray[np.float32]
_TOGETHER = 16  # outputs that are made at a time
_SPREAD = 4.6  # standard deviation of whole numbers from 0 to 15


def _shape(layers: int, hidden: int, inner: int, heads: int, vocab: int, context: int) -> LlamaShape:
    """A llama whose heads all have keys and values of their own."""
    size = hidden // heads
    return LlamaShape(
        layers=layers,
        hidden=hidden,
        inner=inner,
        heads=heads,
        kv_heads=heads,
        head_size=size,
        rotary=size,
        vocab=vocab,
        context=context,
        eps=1e-5,
        theta=10000.0,
        rope_scale=1.0,
    )


SHAPES = {
    "phi3-mini": _shape(32, 3072, 8192, 32, 32064, 4096),  # microsoft/Phi-3-mini-4k-instruct
    "tiny": _shape(2, 64, 128, 4, 512, 512),
}


class RandomLlama:
    """A llama file that nobody trained; see `llama_graph.LlamaFile`."""

    def __init__(self, path: Path, shape: LlamaShape) -> None:
        self.path = path
        self.shape = shape
        self.metadata = _metadata()
        width, kv_width = shape.heads * shape.head_size, shape.kv_heads * shape.head_size
        self._sizes = {
            "token_embd": (shape.vocab, shape.hidden),
            "output": (shape.vocab, shape.hidden),
            "attn_q": (width, shape.hidden),
            "attn_k": (kv_width, shape.hidden),
            "attn_v": (kv_width, shape.hidden),
            "attn_output": (shape.hidden, width),
            "ffn_gate": (shape.inner, shape.hidden),
            "ffn_up": (shape.inner, shape.hidden),
            "ffn_down": (shape.hidden, shape.inner),
            "attn_norm": (shape.hidden,),
            "ffn_norm": (shape.hidden,),
            "output_norm": (shape.hidden,),
        }

    def has(self, name: str) -> bool:
        """Whether there is a weight of that name: the head has one of its own."""
        return name.rpartition(".")[2] in self._sizes

    def size(self, name: str) -> tuple[int, ...]:
        """A weight's sizes, output channels first."""
        return self._sizes[name.rpartition(".")[2]]

    def weight(self, name: str) -> Floats:
        """Ones for a norm; a matrix as its blocks have it."""
        size = self.size(name)
        return np.ones(size, np.float32) if len(size) == 1 else self.stored(name).floats(0, size[0])

    def stored(self, name: str) -> "RandomBlocks":
        """A matrix."""
        outer, inner = self.size(name)
        return RandomBlocks(zlib.crc32(name.encode()), outer, inner)

    def rotary_factors(self) -> None:
        """Frequencies are as they are."""

    def type_summary(self) -> str:
        """What the weights are made of."""
        return "random numbers, distinct in every layer"


@dataclass(frozen=True, slots=True)
class RandomBlocks:
    """A matrix of random 4-bit numbers that belong to its seed and keep the size of what they multiply."""

    seed: int
    outer: int
    inner: int
    form: Form = FORMS["Q4_0"]
    quantised: bool = True

    def floats(self, start: int, stop: int) -> Floats:
        """The weights of some outputs."""
        return self.blocks(start, stop).floats()

    def blocks(self, start: int, stop: int) -> Blocks:
        """Likewise, as blocks: the same however they are cut."""
        groups = range(start // _TOGETHER, -(-stop // _TOGETHER))
        made = np.concatenate([self._numbers(group) for group in groups])
        numbers = made[start - groups.start * _TOGETHER :][: stop - start]
        scale = np.full((stop - start, -(-self.inner // BLOCK)), self.inner**-0.5 / _SPREAD, np.float16)
        return Blocks(numbers, scale, None, self.form.zero)

    def _numbers(self, group: int) -> npt.NDArray[np.uint8]:
        rng = np.random.default_rng([self.seed, group])
        return rng.integers(0, 16, (_TOGETHER, self.inner), np.uint8)


def shape_folder(name: str, cache: Path, progress: Progress) -> Path:
    """The packed folder of a shape, made once for each version of the packed form."""
    options, shape = ImportOptions(name=f"random {name}"), SHAPES[name]
    digest = hashlib.sha256(f"{FORMAT} {shape} {msgspec.json.encode(options).decode()}".encode()).hexdigest()
    folder = cache / f"bench-{name}-{digest[:16]}"
    with locked(folder, progress):
        if not folder.exists() or damage(folder) is not None:
            logical = read_llama(RandomLlama(folder, shape))
            record = SourceRecord(path=name, kind="gguf", sha256=digest)
            import_logical(logical, folder, options, progress, lambda: record, "bench")
    return folder


def _metadata() -> dict[str, Any]:
    """A tokenizer of single bytes and an end, so that the model can be served."""
    tokens = [*sorted(ByteLevel.alphabet()), "<|end|>"]
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": "gpt-2",
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [1] * (len(tokens) - 1) + [3],
        "tokenizer.ggml.merges": [],
        "tokenizer.ggml.eos_token_id": len(tokens) - 1,
    }
