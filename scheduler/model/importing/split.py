"""The splitting pass: outlier channels are carried by several copies of themselves, so that 8 bits suffice.

A row is rounded in steps of its largest magnitude, and in language models the largest magnitudes sit in the same few
channels of a layer's input, row after row. A channel that is copied c times, each copy a c-th of it, with the same
weights behind each copy, contributes what it did, and the largest magnitude falls by c. Unlike smoothing, which moves
the outliers into the weights, it costs the weights nothing (Zhao et al., "Improving Neural Network Quantization without
Retraining using Outlier Channel Splitting", 2019). It costs the copies: a few more columns of a matmul.

    a norm          its weight is divided by c; the copies are taken after rounding, as bytes
    act(gate) * up  both projections give the copied channels, the up projection's divided by c: no operation more

Knows graphs and linear layers; not where the calibration rows come from.
"""

from collections.abc import Iterator, Mapping, Sequence

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from scheduler.model.importing.smooth import Group
from scheduler.model.importing.weights import Floats, Linear

COPIES = 64
"""Extra channels of an input, a block of the matmul kernels; the error left on SmolLM2-135M is 4 (gated products) to 80
times (norms) smaller than without, and twice as many copies would not halve it again."""

_ACTIVATIONS = {"Sigmoid", "Gelu", "FastGelu", "QuickGelu", "Tanh", "Relu", "Mul"}


def split(found: Sequence[Group], rows: Mapping[str, Floats], copies: int = COPIES) -> int:
    """Choose and make the copies for every group whose input can be copied and has calibration rows [count, inner].

    Returns:
        How many groups were changed.

    """
    makers = {layer.node: layer for group in found for layer in group.layers}
    changed = 0
    for group in found:
        sources = _sources(group, makers)
        if sources is not None and group.name in rows:
            _copy(group, sources, counts(rows[group.name], copies))
            changed += 1
    return changed


def counts(x: Floats, copies: int) -> npt.NDArray[np.int64]:
    """How often to carry each channel of rows [count, inner], `copies` in all beyond once: [inner].

    Each copy goes where it lowers the rows' largest magnitudes most, by the square of what that costs in rounding.
    """
    sizes = np.abs(x)
    power = np.maximum((sizes**2).mean(axis=1), 1e-30)
    often = np.ones(x.shape[1], np.int64)
    shares = sizes.copy()
    for _ in range(copies):
        at = shares.argmax(axis=1)
        weight = shares[np.arange(len(x)), at] ** 2 / power
        channel = int(np.bincount(at, weight, x.shape[1]).argmax())
        often[channel] += 1
        shares[:, channel] = sizes[:, channel] / often[channel]
    return often


def _sources(group: Group, makers: Mapping[ir.Node, Linear]) -> tuple[Linear, Linear] | tuple[()] | None:
    """The gate and up projections whose product the input is; () where a norm makes it; None where nobody can."""
    if group.norm is not None:
        return ()
    node = group.x.producer()
    if node is None or node.op_type != "Mul" or not group.only_layers_read:
        return None
    first, second = node.inputs
    for up, act in ((first, second), (second, first)):
        layer = _maker(up, makers, 1)
        gate = _gate(act, makers)
        if layer is not None and gate is not None and layer is not gate and layer.outer == gate.outer:
            return gate, layer
    return None


def _maker(value: ir.Value | None, makers: Mapping[ir.Node, Linear], uses: int) -> Linear | None:
    """The layer without a bias that makes a value with so many uses."""
    node = value.producer() if value is not None else None
    layer = makers.get(node) if node is not None else None
    if value is None or layer is None or layer.bias is not None or len(value.uses()) != uses:
        return None
    return layer


def _gate(act: ir.Value | None, makers: Mapping[ir.Node, Linear]) -> Linear | None:
    """The layer that an activation is of, elementwise and of nothing else: x, f(x), or x * f(x)."""
    layers = list(_origins(act, makers))
    return layers[0] if layers and None not in layers and len(set(layers)) == 1 else None


def _origins(value: ir.Value | None, makers: Mapping[ir.Node, Linear]) -> Iterator[Linear | None]:
    node = value.producer() if value is not None else None
    if node is None or value is None or value.is_graph_output():
        yield None
    elif (layer := makers.get(node)) is not None:
        readers = {use.node.op_type for use in value.uses()}
        yield layer if layer.bias is None and readers <= _ACTIVATIONS else None
    elif node.op_type in _ACTIVATIONS and len(value.uses()) == 1:
        for inner in node.inputs:
            yield from _origins(inner, makers)
    else:
        yield None


def _copy(group: Group, sources: tuple[Linear, Linear] | tuple[()], often: npt.NDArray[np.int64]) -> None:
    extra = np.repeat(np.arange(len(often)), often - 1)
    share = often.astype(np.float32)
    for layer in group.layers:
        layer.copies = extra
        layer.copied = not sources
    if sources:
        gate, up = sources
        gate.out_copies = up.out_copies = extra
        up.out_scale = share
    else:
        group.divide(share)
