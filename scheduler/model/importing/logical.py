"""What every source hands to the passes: a graph in the form onnxruntime-genai's builder makes, and what goes with it.

The graph takes `input_ids`, `attention_mask` and a past per layer, has one GroupQueryAttention per layer and gives
`logits` and a present per layer. Nothing here knows how a source is read or how the packed folder is written.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

import msgspec
import onnx_ir as ir

from scheduler.model.importing.errors import ImportFailed
from scheduler.model.importing.stored import Stored


class RopeSwitch(msgspec.Struct, frozen=True):
    """Which of a longrope model's two rotary tables were kept; `original` is the last context of the short ones."""

    original: int
    chosen: Literal["short", "long"]

    def fits(self, context: int) -> bool:
        """Whether a context of that many tokens is served by the tables that were kept."""
        return (context > self.original) == (self.chosen == "long")


@dataclass(frozen=True, slots=True)
class LogicalModel:
    """A model as its source tells it, before any pass.

    `config` has the form of genai_config.json. `texts` are small files to write by name; `copies` are small files to
    copy. `stored` are matrices as the source stores them, by the names of the graph's constants, where it says.
    """

    kind: Literal["gguf", "genai"]
    name: str
    model: ir.Model
    config: dict[str, Any]
    max_context: int
    rope_switch: RopeSwitch | None = None
    texts: dict[str, str] = field(default_factory=dict)
    copies: tuple[Path, ...] = ()
    stored: Mapping[str, Stored] = field(default_factory=dict)
    notes: tuple[str, ...] = ()


def check_context(wanted: int | None, own: int) -> int:
    """Choose the context to build for, in tokens: the wanted one, else the model's own.

    Raises:
        ImportFailed: More is wanted than the model was made for.

    """
    if wanted is not None and not 0 < wanted <= own:
        message = f"a context of {wanted} tokens was asked for; this model takes 1 to {own}: choose one in that range"
        raise ImportFailed(message)
    return own if wanted is None else wanted


def dimensions(tensor: ir.TensorProtocol) -> list[int]:
    """Return the sizes of a constant, which are all known; its data is not read."""
    return [size for size in tensor.shape if isinstance(size, int)]
