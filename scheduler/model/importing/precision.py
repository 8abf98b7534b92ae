"""The precision a model is served in: what the options, the processor and the memory make of it, and carrying it out.

Every choice comes with a sentence that says why. Knows the order of the passes; each is in a file of its own.
"""

from dataclasses import dataclass, field
from pathlib import Path

import msgspec
import numpy as np
import onnx_ir as ir

from scheduler.config import MEMORY_SHARE, MOST_SLOTS
from scheduler.host import available_memory, integer_units
from scheduler.model.importing.cache_pass import quantise_cache
from scheduler.model.importing.calibrate import Calibration, calibrate
from scheduler.model.importing.limbs import choose, losses
from scheduler.model.importing.linear import quantise_linears, restore_floats
from scheduler.model.importing.logical import LogicalModel
from scheduler.model.importing.manifest import Activations, ImportOptions, KvCache, Weights
from scheduler.model.importing.progress import Progress
from scheduler.model.importing.smooth import Group, groups, smooth
from scheduler.model.importing.split import COPIES, split
from scheduler.model.importing.texts import calibration_tokens
from scheduler.model.importing.weights import Linear, linears

WEIGHED = 256
"""Tokens of the calibration text that second limbs are weighed on."""

CANDIDATES = 32
"""Inputs whose second limbs are weighed: those that one limb rounds worst."""


class Precision(msgspec.Struct, frozen=True):
    """What a model is served in; `reasons` has a sentence for each choice."""

    weights: Weights
    activations: Activations
    kv_cache: KvCache
    reasons: list[str]


def decide(logical: LogicalModel, options: ImportOptions, memory: int | None = None) -> Precision:
    """Settle what the options leave open, for a packed model where `memory` bytes are at hand (None: as now)."""
    memory = available_memory() if memory is None else memory
    layers = list(linears(logical.model.graph))
    weights, why_weights = _weights(logical, options, layers, memory)
    cache, why_cache = _cache(logical, options, memory)
    reasons = [why_weights, why_cache]
    activations = options.activations
    if weights == "int8":
        reasons.append(_ACTIVATIONS[activations])
    elif activations != "auto":
        reasons.append(f"Activations {activations} bit were asked for, and are as they were: the weights are not int8.")
    return Precision(weights, activations, cache, reasons)


def _weights(logical: LogicalModel, options: ImportOptions, layers: list[Linear], memory: int) -> tuple[Weights, str]:
    if options.weights != "auto":
        return options.weights, f"Weights {options.weights}, as asked."
    if not layers:
        return "keep", "Weights kept: no linear layer of this model is one that is understood."
    if logical.kind == "gguf":
        return "int8", "Weights int8: a GGUF file's blocks have no kernel of their own here."
    units = integer_units()
    if not units:
        return "keep", "Weights kept: this processor multiplies int8 no faster (neither AMX nor VNNI)."
    needed = 2 * sum(layer.inner * layer.outer for layer in layers)  # the file, and what onnxruntime packs of it
    if needed > memory:
        return "keep", f"Weights kept: int8 ones would need {needed / 2**30:.1f} of {memory / 2**30:.1f} GiB."
    return "int8", f"Weights int8: this processor has {' and '.join(units)}, so that a step's rows share their cost."


def _cache(logical: LogicalModel, options: ImportOptions, memory: int) -> tuple[KvCache, str]:
    if options.kv_cache != "auto":
        return options.kv_cache, f"KV cache {options.kv_cache}, as asked."
    decoder = logical.config["model"]["decoder"]
    per_token = 8 * decoder["num_hidden_layers"] * decoder["num_key_value_heads"] * decoder["head_size"]
    context = options.context or logical.max_context
    full = MOST_SLOTS * context * per_token
    if full <= memory * MEMORY_SHARE:
        return "float32", f"KV cache float32: {MOST_SLOTS} slots of {context} tokens fit ({full / 2**30:.1f} GiB)."
    return (
        "int8",
        f"KV cache int8: {MOST_SLOTS} slots of {context} tokens would take {full / 2**30:.1f} GiB as float32.",
    )


_ACTIVATIONS: dict[Activations, str] = {
    "8": "Activations 8 bit, as asked.",
    "16": "Activations 16 bit, as asked: a second limb in every linear layer.",
    "auto": "Activations 8 bit, and 16 bit where calibration shows that it buys most.",
}


@dataclass(slots=True)
class Quantiser:
    """Carries a precision out on a packed model.

    Attributes:
        context: tokens that the model can run at once.
        folder: has the model's tokenizer.json; models to measure are written into it for the while.
    """

    model: ir.Model
    context: int
    folder: Path
    progress: Progress
    notes: list[str] = field(default_factory=list)

    def run(self, precision: Precision) -> list[str]:
        """Quantise; what was done, in sentences."""
        layers = list(linears(self.model.graph)) if precision.weights == "int8" else []
        found = groups(layers)
        wants_rows = bool(layers) and precision.activations != "16"
        if wants_rows or precision.kv_cache == "int8":
            calibration = calibrate(self.model, self._text(), self.context, self.folder, self.progress)
            if wants_rows:
                self._spread(found, calibration)
        if precision.weights == "float32":
            restore_floats(self.model, list(linears(self.model.graph)))
        if layers:
            self._limbs(found, precision.activations, calibration if wants_rows else None)
            quantise_linears(self.model, layers)
            double = sum(layer.limbs == 2 for layer in layers)
            self.notes.append(f"{len(layers)} linear layers to int8, {double} of them with 16-bit activations.")
        if precision.kv_cache == "int8":
            quantise_cache(self.model, calibration.cache)
            self.notes.append("KV cache to int8, a calibrated scale per channel.")
        return self.notes

    def _text(self) -> list[int]:
        return [token for piece in calibration_tokens(self.folder) for token in piece]

    def _spread(self, found: list[Group], calibration: Calibration) -> None:
        copied = split(found, calibration.rows)
        smoothed = smooth([group for group in found if group.columns is not None], calibration.rows, self.progress)
        self.notes.append(
            f"Outlier channels of {copied} inputs carried by {COPIES} copies; {smoothed} inputs smoothed."
        )

    def _limbs(self, found: list[Group], activations: Activations, calibration: Calibration | None) -> None:
        chosen: list[Group] = []
        if activations == "16":
            chosen = found
        elif activations == "auto" and calibration is not None:
            worst = sorted(found, key=lambda group: _rounding(group, calibration), reverse=True)[:CANDIDATES]
            text = self._text()[-min(WEIGHED, self.context) :]
            lost = losses(self.model, found, worst, text, self.folder, self.progress)
            chosen = choose(worst, lost)
        for group in chosen:
            for layer in group.layers:
                layer.limbs = 2


def _rounding(group: Group, calibration: Calibration) -> float:
    """What one limb loses of an input's calibration rows, relative to their power, its copies and scales included."""
    rows = calibration.rows[group.name]
    layer = group.layers[0]
    share = np.ones(layer.inner, np.float32)
    if layer.in_scale is not None:
        share = share * layer.in_scale
    if layer.copies is not None:
        share = share * (1 + np.bincount(layer.copies, minlength=len(share)))
    carried = rows / share
    step = np.maximum(np.abs(carried).max(axis=1, keepdims=True), 1e-12) / 127
    return float((((np.rint(carried / step) * step - carried) * share) ** 2).sum() / max((rows**2).sum(), 1e-30))
