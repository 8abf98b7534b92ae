"""Tiny llama models as GGUF files, and what a llama computes, in float64 and in GGUF's own row order."""

from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFWriter, dequantize, quantize

Floats = npt.NDArray[np.float64]
F32 = GGMLQuantizationType.F32
TOKENS = ["<s>", "</s>", "<pad>", *(chr(c) for c in range(33, 127)), "ab", *(f"t{i}" for i in range(30))]


@dataclass(frozen=True)
class TinyLlama:
    """A model with random weights; `kind` is how its matrices are stored."""

    layers: int = 2
    hidden: int = 64
    inner: int = 96
    heads: int = 4
    kv_heads: int = 2
    head_size: int = 16
    rotary: int = 16
    context: int = 128
    tied: bool = False
    kind: GGMLQuantizationType = F32
    rope_factors: bool = False
    linear_scale: float | None = None
    seed: int = 0
    weights: dict[str, Floats] = field(default_factory=dict)

    def write(self, path: Path, **extra: str | float) -> Path:
        """Write the file; `weights` then holds what a reader of it gets. `extra` is more metadata, by key."""
        writer = GGUFWriter(path, "llama")
        writer.add_block_count(self.layers)
        writer.add_context_length(self.context)
        writer.add_embedding_length(self.hidden)
        writer.add_feed_forward_length(self.inner)
        writer.add_head_count(self.heads)
        writer.add_head_count_kv(self.kv_heads)
        writer.add_key_length(self.head_size)
        writer.add_value_length(self.head_size)
        writer.add_layer_norm_rms_eps(1e-5)
        writer.add_rope_freq_base(500.0)
        writer.add_rope_dimension_count(self.rotary)
        if self.linear_scale is not None:
            writer.add_string("llama.rope.scaling.type", "linear")
            writer.add_float32("llama.rope.scaling.factor", self.linear_scale)
        _tokenizer(writer)
        for key, value in extra.items():
            name = key.replace("__", ".")
            if isinstance(value, str):
                writer.add_string(name, value)
            elif isinstance(value, int):
                writer.add_uint32(name, value)
            else:
                writer.add_float32(name, value)
        self._tensors(writer)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def _tensors(self, writer: GGUFWriter) -> None:
        random = np.random.default_rng(self.seed)
        q, kv = self.heads * self.head_size, self.kv_heads * self.head_size
        shapes = {"token_embd": (len(TOKENS), self.hidden), "output_norm": (self.hidden,)}
        if not self.tied:
            shapes["output"] = (len(TOKENS), self.hidden)
        if self.rope_factors:
            shapes["rope_freqs"] = (self.rotary // 2,)
        for layer in range(self.layers):
            sizes = {
                "attn_norm": (self.hidden,),
                "attn_q": (q, self.hidden),
                "attn_k": (kv, self.hidden),
                "attn_v": (kv, self.hidden),
                "attn_output": (self.hidden, q),
                "ffn_norm": (self.hidden,),
                "ffn_gate": (self.inner, self.hidden),
                "ffn_up": (self.inner, self.hidden),
                "ffn_down": (self.hidden, self.inner),
            }
            shapes |= {f"blk.{layer}.{name}": size for name, size in sizes.items()}
        for name, shape in shapes.items():
            noise = random.standard_normal(shape)
            values = (noise / np.sqrt(shape[-1]) if len(shape) == 2 else 1 + 0.2 * np.abs(noise)).astype(np.float32)
            kind = self.kind if len(shape) == 2 else F32
            data = quantize(values, kind)
            self.weights[name] = dequantize(data, kind).reshape(shape).astype(np.float64)
            writer.add_tensor(f"{name}.weight", data, raw_dtype=kind)

    def forward(self, tokens: list[int]) -> Floats:
        """Logits of every token, [len(tokens), V]."""
        w = self.weights
        x = w["token_embd"][tokens]
        for layer in range(self.layers):
            part = {name.split(".")[2]: value for name, value in w.items() if name.startswith(f"blk.{layer}.")}
            x = x + self._attention(_norm(x, part["attn_norm"]), part) @ part["attn_output"].T
            hidden = _norm(x, part["ffn_norm"])
            gate = hidden @ part["ffn_gate"].T
            x = x + (gate / (1 + np.exp(-gate)) * (hidden @ part["ffn_up"].T)) @ part["ffn_down"].T
        logits: Floats = _norm(x, w["output_norm"]) @ w["token_embd" if self.tied else "output"].T
        return logits

    def _attention(self, x: Floats, part: dict[str, Floats]) -> Floats:
        length, group = len(x), self.heads // self.kv_heads
        q = self._rotate((x @ part["attn_q"].T).reshape(length, self.heads, self.head_size))
        k = self._rotate((x @ part["attn_k"].T).reshape(length, self.kv_heads, self.head_size))
        v = (x @ part["attn_v"].T).reshape(length, self.kv_heads, self.head_size)
        scores = np.einsum("thd,shd->hts", q, k.repeat(group, axis=1)) / np.sqrt(self.head_size)
        scores[:, np.triu(np.ones((length, length), bool), 1)] = -np.inf
        weights = np.exp(scores - scores.max(-1, keepdims=True))
        weights /= weights.sum(-1, keepdims=True)
        mixed: Floats = np.einsum("hts,shd->thd", weights, v.repeat(group, axis=1)).reshape(length, -1)
        return mixed

    def _rotate(self, x: Floats) -> Floats:
        """Turn neighbouring elements, (0, 1), (2, 3), ..., which is how GGUF orders them."""
        frequency = 500.0 ** -(np.arange(0, self.rotary, 2) / self.rotary) / (self.linear_scale or 1.0)
        if self.rope_factors:
            frequency = frequency / self.weights["rope_freqs"]
        angle = (np.arange(len(x))[:, None] * frequency)[:, None]
        even, odd = x[..., : self.rotary : 2], x[..., 1 : self.rotary : 2]
        turned = x.copy()
        turned[..., : self.rotary : 2] = even * np.cos(angle) - odd * np.sin(angle)
        turned[..., 1 : self.rotary : 2] = even * np.sin(angle) + odd * np.cos(angle)
        return turned


def _norm(x: Floats, weight: Floats) -> Floats:
    scaled: Floats = x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight
    return scaled


def _tokenizer(writer: GGUFWriter) -> None:
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    writer.add_token_list(TOKENS)
    writer.add_token_types([3, 3, 3, *[1] * (len(TOKENS) - 3)])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(0)
    writer.add_eos_token_id(1)
    writer.add_pad_token_id(2)
