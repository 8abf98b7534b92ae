"""The sizes of a llama model, wherever its weights come from."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class LlamaShape:
    """Sizes of a llama model, in elements; `eps` and `theta` as the metadata says."""

    layers: int
    hidden: int
    inner: int
    heads: int
    kv_heads: int
    head_size: int
    rotary: int
    vocab: int
    context: int
    eps: float
    theta: float
    rope_scale: float
