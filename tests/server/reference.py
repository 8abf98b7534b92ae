"""What a tiny llama folder of onnxruntime-genai computes, in float64 and numpy alone.

The published formulas, read from the folder's initializers: nothing of onnxruntime's kernels, and nothing of ours.
"""

import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
from numpy.typing import NDArray

Floats = NDArray[np.float64]
HEADS, KV_HEADS, SIZE, EPSILON = 4, 2, 32, 1e-6


def exact_copy(source: Path, target: Path) -> Path:
    """A copy of the folder whose linear layers leave their inputs as they are, instead of rounding them to 8 bits."""
    shutil.copytree(source, target)
    model = ir.load(target / "model.onnx")
    for node in model.graph:
        if node.op_type == "MatMulNBits":
            node.attributes["accuracy_level"] = ir.AttrInt64("accuracy_level", 0)
    ir.save(model, target / "model.onnx")  # the weights stay where they are
    return target


class Llama:
    """The folder's weights, widened."""

    def __init__(self, folder: Path) -> None:
        model = ir.load(folder / "model.onnx")
        self._raw: dict[str, NDArray[Any]] = {
            name: value.const_value.numpy()
            for name, value in model.graph.initializers.items()
            if value.const_value is not None
        }

    def logprobs(self, tokens: list[int]) -> Floats:
        """The logprobs of what follows each token, [len(tokens), V]."""
        x = self._raw["model.embed_tokens.weight"].astype(np.float64)[tokens]
        for layer in range(2):
            name = f"model.layers.{layer}"
            x = x + self._attention(self._norm(x, f"{name}.input_layernorm"), name)
            hidden = self._norm(x, f"{name}.post_attention_layernorm")
            gate = hidden @ self._linear(f"{name}.mlp.gate_proj")
            inner = gate / (1 + np.exp(-gate)) * (hidden @ self._linear(f"{name}.mlp.up_proj"))
            x = x + inner @ self._linear(f"{name}.mlp.down_proj")
        logits = self._norm(x, "model.layers.2.final_norm_layernorm") @ self._linear("lm_head")
        return log_softmax(logits)

    def _linear(self, name: str) -> Floats:
        """A layer's weight [in, out]: blocks of 32 values of 4 bits, the lower half of a byte first, about 8."""
        packed, scales = (self._raw[f"{name}.MatMul.{part}"] for part in ("weight_Q4", "weight_scales"))
        values = np.stack([packed & 15, packed >> 4], axis=-1).reshape(*scales.shape, 32).astype(np.float64) - 8
        weight: Floats = (values * scales[..., None]).reshape(len(packed), -1).T
        return weight

    def _norm(self, x: Floats, name: str) -> Floats:
        scaled: Floats = x / np.sqrt((x * x).mean(-1, keepdims=True) + EPSILON) * self._raw[f"{name}.weight"]
        return scaled

    def _attention(self, x: Floats, name: str) -> Floats:
        length = len(x)
        qkv = (x @ self._linear(f"{name}.attn.qkv_proj")).reshape(length, HEADS + 2 * KV_HEADS, SIZE)
        q, k, v = np.split(qkv, [HEADS, HEADS + KV_HEADS], axis=1)
        q, k, v = self._rotated(q), self._rotated(k).repeat(HEADS // KV_HEADS, 1), v.repeat(HEADS // KV_HEADS, 1)
        scores = np.einsum("thd,shd->hts", q, k) / np.sqrt(SIZE)
        scores[:, np.triu(np.ones((length, length), bool), 1)] = -np.inf
        mixed = np.einsum("hts,shd->thd", np.exp(log_softmax(scores)), v).reshape(length, -1)
        out: Floats = mixed @ self._linear(f"{name}.attn.o_proj")
        return out

    def _rotated(self, x: Floats) -> Floats:
        cos, sin = (self._raw[f"{name}_cache"][: len(x), None].astype(np.float64) for name in ("cos", "sin"))
        first, second = np.split(x, 2, axis=-1)
        return np.concatenate([first * cos - second * sin, second * cos + first * sin], axis=-1)


def log_softmax(logits: Floats) -> Floats:
    """The natural logarithm of softmax over the last axis."""
    shifted = logits - logits.max(-1, keepdims=True)
    out: Floats = shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))
    return out
