"""Random models of a given size: what a step costs depends on the shape of the weights, not on what they say.

Weights are made when they are written, one by one, so a model of 15 GB in float32 is imported within a few hundred
megabytes. They differ from layer to layer: onnxruntime keeps equal weights once, and equal layers would stay in the
processor's cache. The passes are those of an import.
"""

import hashlib
import zlib
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import numpy.typing as npt
from tokenizers.pre_tokenizers import ByteLevel

from scheduler.model.importing import FORMAT, ImportOptions, Progress
from scheduler.model.importing.gguf_file import LlamaShape
from scheduler.model.importing.gguf_source import read_llama
from scheduler.model.importing.importer import import_logical
from scheduler.model.importing.made import damage
from scheduler.model.importing.manifest import SourceRecord
from scheduler.model.importing.target import locked

Floats = npt.NDArray[np.float32]


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
        """Numbers that belong to the name and keep the size of what they multiply; ones for a norm."""
        size = self.size(name)
        if len(size) == 1:
            return np.ones(size, np.float32)
        values = np.random.default_rng(zlib.crc32(name.encode())).standard_normal(size, np.float32)
        values *= np.float32(size[-1] ** -0.5)
        return values

    def rotary_factors(self) -> None:
        """Frequencies are as they are."""

    def type_summary(self) -> str:
        """What the weights are made of."""
        return "random numbers, distinct in every layer"


def shape_folder(name: str, cache: Path, progress: Progress) -> Path:
    """The packed folder of a shape, made once for each version of the packed form."""
    options, shape = ImportOptions(name=f"random {name}", activations="8"), SHAPES[name]
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
