"""A GGUF file of the llama architecture: metadata as plain values, weights one by one as float32.

Weights stay on the disk until they are asked for. Whatever would change the model's answers and is not understood is
refused by name. Knows nothing of graphs.
"""

import re
from collections import Counter
from dataclasses import dataclass
from functools import cached_property, partial
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGUFReader, dequantize

from scheduler.model.importing.blocks import Blocks, Form
from scheduler.model.importing.errors import BrokenSource, UnsupportedModel
from scheduler.model.importing.gguf_blocks import FORMS, read_blocks
from scheduler.model.importing.gguf_rows import halves
from scheduler.model.importing.llama_shape import LlamaShape
from scheduler.model.importing.stored import Dense, Stored

Floats = npt.NDArray[np.float32]

_METADATA = {  # llama.* keys that are read here, or that do not change what the model answers
    "attention.causal",
    "attention.head_count",
    "attention.head_count_kv",
    "attention.key_length",
    "attention.layer_norm_rms_epsilon",
    "attention.value_length",
    "block_count",
    "context_length",
    "embedding_length",
    "expert_count",
    "expert_used_count",
    "feed_forward_length",
    "rope.dimension_count",
    "rope.freq_base",
    "rope.scale_linear",
    "rope.scaling.factor",
    "rope.scaling.finetuned",
    "rope.scaling.original_context_length",
    "rope.scaling.type",
    "tensor_data_layout",
    "vocab_size",
}
_FLOATS = {"F32", "F16", "BF16", "F64"}
_TENSORS = re.compile(
    r"(token_embd|output|output_norm|rope_freqs)\.weight"
    r"|blk\.\d+\.(attn_norm|attn_q|attn_k|attn_v|attn_output|ffn_norm|ffn_gate|ffn_up|ffn_down)\.weight"
)


class GgufFile:
    """A GGUF file of the llama architecture, opened.

    Raises:
        BrokenSource: The file is no GGUF file, or is cut short.
        UnsupportedModel: It holds another architecture, or something that is not understood.

    """

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stored: dict[str, Stored] = {}
        try:
            self._reader = GGUFReader(path)
            self._tensors = {tensor.name: tensor for tensor in self._reader.tensors}
            self.metadata: dict[str, Any] = {
                key: field.contents() for key, field in self._reader.fields.items() if field.types
            }
        except (OSError, ValueError, KeyError, IndexError, TypeError, OverflowError, UnicodeDecodeError) as error:
            message = f"{path} is no readable GGUF file ({error})"
            raise BrokenSource(f"{message}: it may be cut short; download it anew") from error
        self._check()

    @cached_property
    def shape(self) -> LlamaShape:
        """The model's sizes."""
        heads, hidden = self._int("attention.head_count"), self._int("embedding_length")
        head_size = self._int("attention.key_length", hidden // heads)
        if self._int("attention.value_length", head_size) != head_size:
            raise self._refused("llama.attention.value_length differs from key_length")
        return LlamaShape(
            layers=self._int("block_count"),
            hidden=hidden,
            inner=self._int("feed_forward_length"),
            heads=heads,
            kv_heads=self._int("attention.head_count_kv", heads),
            head_size=head_size,
            rotary=self._int("rope.dimension_count", head_size),
            vocab=self.size("token_embd")[0],
            context=self._int("context_length"),
            eps=float(self._get("attention.layer_norm_rms_epsilon", 1e-5)),
            theta=float(self._get("rope.freq_base", 10000.0)),
            rope_scale=self._rope_scale(),
        )

    def has(self, name: str) -> bool:
        """Whether there is a weight of that name."""
        return f"{name}.weight" in self._tensors

    def size(self, name: str) -> tuple[int, ...]:
        """Return a weight's sizes, rows (output channels) first."""
        return tuple(int(n) for n in reversed(self._tensor(name).shape))

    def weight(self, name: str) -> Floats:
        """Read one weight as float32 [out, in] in the order of Hugging Face's Llama, whatever its type on the disk."""
        sizes = self.size(name)
        return self.floats(name, 0, sizes[0]) if len(sizes) == 2 else self._dequantised(name, self._tensor(name).data)

    def floats(self, name: str, start: int, stop: int) -> Floats:
        """Likewise the outputs [start, stop) of a matrix."""
        return self._dequantised(name, self._rows(name, start, stop)).reshape(stop - start, -1)

    def stored(self, name: str) -> Stored:
        """One matrix, [out, in] in that order, as it is stored; read when it is asked for. The same for one name."""
        if name not in self._stored:
            self._stored[name] = self._as_stored(name)
        return self._stored[name]

    def _as_stored(self, name: str) -> Stored:
        kind = self._tensor(name).tensor_type.name
        outer, inner = self.size(name)
        if kind in FORMS:
            return _Stored(self, name, outer, inner, FORMS[kind])
        return Dense(outer, inner, partial(self.floats, name), quantised=kind not in _FLOATS)

    def blocks(self, name: str, start: int, stop: int) -> Blocks:
        """The weights of the outputs [start, stop), of a type whose blocks are known."""
        return read_blocks(self._tensor(name).tensor_type.name, self._rows(name, start, stop))

    def type_summary(self) -> str:
        """Tell how many tensors there are of each type."""
        counts = Counter(tensor.tensor_type.name for tensor in self._tensors.values())
        return ", ".join(f"{count} tensors of {kind}" for kind, count in counts.most_common())

    def rotary_factors(self) -> Floats | None:
        """Read what each rotary frequency is divided by (llama 3's scaling), [rotary / 2], or None."""
        return self.weight("rope_freqs").reshape(-1) if self.has("rope_freqs") else None

    def _check(self) -> None:
        """Refuse what is not understood, before any of it is read."""
        architecture = self.metadata.get("general.architecture")
        if architecture != "llama":
            raise self._refused(f"general.architecture is {architecture}, where only llama is known")
        if self.metadata.get("split.count", 1) > 1:
            raise self._refused("the model is split over several files (split.count); gguf-split --merge joins them")
        for key in self.metadata:
            if key.startswith("llama.") and key.removeprefix("llama.") not in _METADATA:
                raise self._refused(f"the metadata {key} is not understood")
        for key in ("expert_count", "expert_used_count"):
            if self._get(key, 0):
                raise self._refused(f"llama.{key} tells of a mixture of experts")
        if self._get("attention.causal", True) is not True:
            raise self._refused("llama.attention.causal says that it looks ahead")
        for name in self._tensors:
            if not _TENSORS.fullmatch(name):
                raise self._refused(f"the tensor {name} is not understood")

    def _rope_scale(self) -> float:
        """Read by what positions are divided."""
        kind = self._get("rope.scaling.type", "none")
        if kind not in ("none", "linear"):
            raise self._refused(f"llama.rope.scaling.type is {kind}, where none and linear are known")
        factor = self._get("rope.scaling.factor", 1.0) if kind == "linear" else self._get("rope.scale_linear", 1.0)
        return float(factor)

    def _tensor(self, name: str) -> Any:  # noqa: ANN401 - gguf ships no types
        try:
            return self._tensors[f"{name}.weight"]
        except KeyError:
            raise BrokenSource(f"{self.path} has no tensor {name}.weight: download the file anew") from None

    def _rows(self, name: str, start: int, stop: int) -> npt.NDArray[Any]:
        """Outputs of a matrix as they are stored, [stop - start, ..]."""
        data = self._tensor(name).data.reshape(self.size(name)[0], -1)
        heads = {"attn_q": self.shape.heads, "attn_k": self.shape.kv_heads}.get(name.rpartition(".")[2])
        rows = data if heads is None else halves(data, heads, self.shape.rotary)
        return np.ascontiguousarray(rows[start:stop])

    def _dequantised(self, name: str, data: npt.NDArray[Any]) -> Floats:
        kind = self._tensor(name).tensor_type
        try:
            values: Floats = dequantize(data, kind).astype(np.float32, copy=False)
        except NotImplementedError as error:
            raise self._refused(f"{name}.weight has the type {kind.name}") from error
        return values

    def _get(self, key: str, default: Any) -> Any:  # noqa: ANN401 - metadata is of any type
        return self.metadata.get(f"llama.{key}", default)

    def _int(self, key: str, default: int | None = None) -> int:
        value = self._get(key, default)
        if value is None:
            raise BrokenSource(f"{self.path} has no metadata llama.{key}: download the file anew")
        if not isinstance(value, int):
            raise self._refused(f"the metadata llama.{key} is not one number")
        return value

    def _refused(self, reason: str) -> UnsupportedModel:
        return UnsupportedModel(f"{self.path.name}: {reason}. Try an export by onnxruntime-genai's builder instead")


@dataclass(frozen=True, slots=True)
class _Stored:
    """A weight in blocks that are known."""

    file: GgufFile
    name: str
    outer: int
    inner: int
    form: Form
    quantised: bool = True

    def floats(self, start: int, stop: int) -> Floats:
        return self.blocks(start, stop).floats()

    def blocks(self, start: int, stop: int) -> Blocks:
        return self.file.blocks(self.name, start, stop)
