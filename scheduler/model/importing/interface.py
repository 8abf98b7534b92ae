"""The inputs and outputs of the graph that runs a step: the contract with whoever feeds it.

T rows (tokens of any requests, in any order but for a request's own), R rows whose logits are wanted, V vocabulary:

    input_ids     int64 [1, T]
    slots         int32 [T]        the row of `tables` whose sequence each token belongs to
    positions     int32 [T]        its place in it
    tables        int32 [S, P]     block tables: the cache page of each 32 tokens of a sequence
    logit_rows    int64 [R]        rows whose logits are wanted
    temperatures  float32 [R]      what `mass` is reckoned with; 0 asks for none
    weights       int8 [W]         the file `model.onnx.weights`
    cache         int8 [pages, B]  keys and values, appended to in place
    -> logits     float32 [1, R, V]
    -> top_ids    int32 [R, C]     the likeliest tokens, in order, ties by the lower id; C = min(128, V)
    -> top_values float32 [R, C]   their logits; the first is no number where a row holds one that is none
    -> mass       float32 [R]      sum over the vocabulary of exp((logit - largest) / temperature)

A page holds 32 tokens of all layers: [layers][keys, values][kv heads][unit]. Knows onnx_ir and these names alone.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import onnx_ir as ir

DOMAIN = "paceline"
PAGE = 32
"""Tokens of a cache page."""


@dataclass(frozen=True, slots=True)
class Inputs:
    """The graph's inputs but for input_ids."""

    slots: ir.Value
    positions: ir.Value
    tables: ir.Value
    logit_rows: ir.Value
    temperatures: ir.Value
    weights: ir.Value
    cache: ir.Value

    @classmethod
    def declare(cls) -> "Inputs":
        """Make them."""
        int32, int64, real, byte = ir.DataType.INT32, ir.DataType.INT64, ir.DataType.FLOAT, ir.DataType.INT8
        return cls(
            slots=declared("slots", int32, ["T"]),
            positions=declared("positions", int32, ["T"]),
            tables=declared("tables", int32, ["S", "P"]),
            logit_rows=declared("logit_rows", int64, ["R"]),
            temperatures=declared("temperatures", real, ["R"]),
            weights=declared("weights", byte, ["W"]),
            cache=declared("cache", byte, ["pages", "B"]),
        )

    def all(self) -> list[ir.Value]:
        """In the contract's order."""
        return [
            self.slots,
            self.positions,
            self.tables,
            self.logit_rows,
            self.temperatures,
            self.weights,
            self.cache,
        ]


def declared(name: str, dtype: ir.DataType, shape: Sequence[int | str]) -> ir.Value:
    """A value of a known type and shape."""
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(shape))


def rows_of(name: str, width: int, rows: str = "T") -> ir.Value:
    """Float rows of a known width: only what is known to be as large is updated in place."""
    return declared(name, ir.DataType.FLOAT, [1, rows, width])


def replace(graph: ir.Graph, old: ir.Value, new: ir.Value) -> None:
    """Let whatever reads one value read the other, the graph's outputs included, which keep their names."""
    for place, value in enumerate(graph.outputs):
        if value is old:
            graph.outputs[place] = new
            old.name, new.name = f"{old.name}.replaced", old.name
            new.shape, new.type = old.shape, old.type
    ir.convenience.replace_all_uses_with(old, new)


def scalar(value: ir.Value | None) -> float | None:
    """The number that a constant of one element holds; None where it is something else."""
    tensor = ir.convenience.get_const_tensor(value) if value is not None else None
    if tensor is None or tensor.size != 1 or tensor.dtype != ir.DataType.FLOAT:
        return None
    return float(tensor.numpy().reshape(()).item())
