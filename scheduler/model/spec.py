"""What a packed model folder says about itself. Knows nothing of sessions and requests."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import msgspec

from scheduler.errors import ModelFolderError

MANIFEST = "paceline.json"

PAGE = 32
"""Tokens in a page of the KV cache."""

LANES = 16
"""Channels of a head are padded to a multiple of this."""

KvCache = Literal["float32", "float16", "int8"]
NUMBER = {"float32": 4, "float16": 2, "int8": 1}
"""Bytes of one number in each kind of cache."""

SCALES = {"float32": 0, "float16": 0, "int8": PAGE * 4}
"""Bytes of the scales of one head's keys or values in a page."""


@dataclass(frozen=True, slots=True)
class ModelSpec:
    """A packed model.

    Attributes:
        folder: where model.onnx lies.
        name: what the model is called where nobody gives it another name.
        context: tokens that it was made for.
        vocab_size: width of the logits.
        end_tokens: ids that end a text.
        kv_cache: what keys and values are kept as.
        heads: of the queries.
        hidden: width of a row between the layers.
    """

    folder: Path
    name: str
    layers: int
    kv_heads: int
    head_size: int
    context: int
    vocab_size: int
    end_tokens: frozenset[int]
    kv_cache: KvCache = "float16"
    heads: int = 1
    hidden: int = 1

    @property
    def page_bytes(self) -> int:
        """Bytes of one page of the KV cache: PAGE tokens, all layers, keys and values."""
        channels = -(-self.head_size // LANES) * LANES
        unit = PAGE * channels * NUMBER[self.kv_cache] + SCALES[self.kv_cache]
        return self.layers * 2 * self.kv_heads * unit

    @property
    def kv_bytes_per_token(self) -> int:
        """KV cache bytes of one token over all layers, keys and values."""
        return self.page_bytes // PAGE

    @property
    def weight_bytes(self) -> int:
        """Bytes of the graph and its weights on disk, about what they take in memory."""
        return sum(path.stat().st_size for path in self.folder.glob("model.onnx*"))

    @classmethod
    def from_folder(cls, folder: Path) -> "ModelSpec":
        """Read the folder's genai_config.json and manifest; ModelFolderError where one is missing or unreadable."""
        config, manifest = _json(folder / "genai_config.json"), _json(folder / MANIFEST)
        try:
            return cls(folder=folder, **_facts(config["model"], manifest))
        except (KeyError, TypeError) as error:
            raise ModelFolderError(
                f"{folder} is not a whole packed folder ({error!r}); import the model again"
            ) from error


def _facts(config: dict[str, Any], manifest: dict[str, Any]) -> dict[str, Any]:
    decoder, end = config["decoder"], config["eos_token_id"]
    return {
        "name": manifest["name"],
        "layers": decoder["num_hidden_layers"],
        "kv_heads": decoder["num_key_value_heads"],
        "head_size": decoder["head_size"],
        "context": manifest["max_context"],
        "vocab_size": manifest["vocab_size"],
        "end_tokens": frozenset(end if isinstance(end, list) else [end]),
        "kv_cache": manifest["kv_cache"],
        "heads": decoder["num_attention_heads"],
        "hidden": decoder["hidden_size"],
    }


def _json(path: Path) -> dict[str, Any]:
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except (OSError, msgspec.DecodeError) as error:
        raise ModelFolderError(f"{path} cannot be read ({error}); import the model again") from error
