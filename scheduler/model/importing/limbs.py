"""Which linear layers get the second limb: those where it buys most, until the rest loses little enough.

One graph has both limbs everywhere, with a switch for each input. Turning one off and running a text tells what that
input's second limb is worth: the KL from the logits with all limbs. The losses nearly add up, so the layers are taken
in order of worth for cost until what the others lose together is under the target.

Knows the packed interface and linear layers; not how they were smoothed.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import onnx_ir as ir

from scheduler.model.importing.calibrate import Runner, written
from scheduler.model.importing.linear import OFF, ON, quantise_linears, switch_name
from scheduler.model.importing.progress import Progress
from scheduler.model.importing.smooth import Group
from scheduler.model.importing.weights import Floats, Linear, linears

LOSS = 0.002
"""Mean KL, in nats, that all layers with one limb may lose together."""


def losses(
    packed: ir.Model,
    found: Sequence[Group],
    weighed: Sequence[Group],
    text: Sequence[int],
    near: Path,
    progress: Progress,
) -> dict[str, float]:
    """Mean KL that the second limb of each group to be weighed saves on a text, by the group's input.

    Args:
        packed: the packed graph, smoothed but not quantised; it is not changed.
        found: its groups.
        weighed: some of them.
        text: tokens; a few hundred tell enough.
        near: a folder on the file system where the model may be written for the while.
        progress: told of each group.
    """
    model = packed.clone()
    layers = _twins(model, found)
    names = {group.name: switch_name(group.x) for group in weighed}
    quantise_linears(model, layers, switched=True)
    on = {switch_name(group.x): ON for group in found}
    lost = {}
    with written(model, near, progress) as path:
        runner = Runner(path)
        progress.start("weigh second limbs", len(weighed))
        best = _log_softmax(runner.run(text, ["logits"], on)[0][0])
        for name, switch in names.items():
            other = _log_softmax(runner.run(text, ["logits"], {**on, switch: OFF})[0][0])
            lost[name] = float((np.exp(best) * (best - other)).sum(axis=-1).mean())
            progress.advance(1)
    progress.done()
    return lost


def choose(found: Sequence[Group], lost: Mapping[str, float], allowed: float = LOSS) -> list[Group]:
    """The groups that get two limbs: most worth for their cost first, until the others lose at most `allowed`."""
    order = sorted(found, key=lambda group: lost[group.name] / cost(group), reverse=True)
    left = sum(lost.values())
    chosen = []
    for group in order:
        if left <= allowed:
            break
        chosen.append(group)
        left -= lost[group.name]
    return chosen


def cost(group: Group) -> float:
    """What a second limb costs a step, in passes over floats: rounding the input again, and adding the outputs."""
    return 4 * group.layers[0].inner + 3 * sum(layer.outer for layer in group.layers)


def _twins(model: ir.Model, found: Sequence[Group]) -> list[Linear]:
    """The groups' layers in a copy of their graph, with two limbs and the same scales and copies."""
    known = {layer.name: layer for group in found for layer in group.layers}
    return [
        replace(known[twin.name], node=twin.node, x=twin.x, bias=twin.bias, limbs=2) for twin in linears(model.graph)
    ]


def _log_softmax(logits: Floats) -> Floats:
    shifted = logits - logits.max(axis=-1, keepdims=True)
    return np.asarray(shifted - np.log(np.exp(shifted).sum(axis=-1, keepdims=True)), np.float32)
