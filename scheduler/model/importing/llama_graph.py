"""Builds the logical graph of a llama model, node for node as onnxruntime-genai's builder would.

Linear layers are plain float MatMuls, [in, out]; query, key and value are one. Weights are
lazy: each is read when it is written, and kept by nobody. Knows nothing of packing or quantisation.
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import onnx_ir as ir

from scheduler.model.importing.llama_shape import LlamaShape
from scheduler.model.importing.stored import Joined, Stored

Floats = npt.NDArray[np.float32]
MICROSOFT = "com.microsoft"
_OPSETS = {"": 22, MICROSOFT: 1}
_IR_VERSION = 10


class LlamaFile(Protocol):
    """Where a llama's weights come from; `gguf_file.GgufFile` is the usual one. Names are GGUF's, without `.weight`."""

    path: Path
    metadata: dict[str, Any]

    @property
    def shape(self) -> LlamaShape:
        """The model's sizes."""

    def has(self, name: str) -> bool:
        """Whether there is a weight of that name."""

    def size(self, name: str) -> tuple[int, ...]:
        """A weight's sizes, output channels first."""

    def weight(self, name: str) -> Floats:
        """One weight, float32 [out, in], the same whenever it is asked for."""

    def stored(self, name: str) -> Stored:
        """The same as it is stored."""

    def rotary_factors(self) -> Floats | None:
        """What each rotary frequency is divided by, [rotary / 2], or None."""

    def type_summary(self) -> str:
        """What the weights are made of, in words."""


def llama_graph(file: LlamaFile) -> tuple[ir.Model, dict[str, Stored]]:
    """Build the graph, for all of the model's own context; also the weights of its matrices as they are stored."""
    builder = _Builder(file)
    return builder.build(), builder.stored


class _Builder:
    """One graph in the making. Values and nodes go by the names of onnxruntime-genai's builder."""

    def __init__(self, file: LlamaFile) -> None:
        self._file, self._shape = file, file.shape
        self.stored: dict[str, Stored] = {}
        self._graph = ir.Graph([], [], nodes=[], opset_imports=_OPSETS, name="llama")

    def build(self) -> ir.Model:
        graph, shape = self._graph, self._shape
        ids = _value("input_ids", ir.DataType.INT64, ["batch_size", "sequence_length"])
        mask = _value("attention_mask", ir.DataType.INT64, ["batch_size", "total_sequence_length"])
        graph.inputs.extend([ids, mask])
        lengths = self._lengths(mask)
        rotary = self._rotary_tables()
        self.stored["model.embed_tokens.weight"] = self._file.stored("token_embd")
        table = self._lazy("model.embed_tokens.weight", (shape.vocab, shape.hidden), lambda: self._weight("token_embd"))
        residual = self._op("Gather", [table, ids], "/model/embed_tokens/Gather")
        hidden = self._norm(residual, "blk.0.attn_norm", "model.layers.0.input_layernorm")
        presents = list[ir.Value]()
        for layer in range(shape.layers):
            attended, present = self._attention(layer, hidden, lengths, rotary)
            presents += present
            name = f"model.layers.{layer}.post_attention_layernorm"
            hidden, residual = self._skip_norm(residual, attended, f"blk.{layer}.ffn_norm", name)
            delta = self._mlp(layer, hidden)
            last = layer + 1 == shape.layers
            weight = "output_norm" if last else f"blk.{layer + 1}.attn_norm"
            name = f"model.layers.{layer + 1}.{'final_norm' if last else 'input'}_layernorm"
            hidden, residual = self._skip_norm(residual, delta, weight, name)
        head = "output" if self._file.has("output") else "token_embd"  # tied
        logits = self._linear(hidden, [head], [shape.vocab], "lm_head")
        logits.name, logits.type = "logits", ir.TensorType(ir.DataType.FLOAT)
        logits.shape = ir.Shape(["batch_size", "sequence_length", shape.vocab])
        graph.outputs.extend([logits, *presents])
        return ir.Model(graph, ir_version=_IR_VERSION, producer_name="paceline")

    def _attention(
        self, layer: int, hidden: ir.Value, lengths: Sequence[ir.Value], rotary: Sequence[ir.Value]
    ) -> tuple[ir.Value, Sequence[ir.Value]]:
        """Attention with its projections; returns its output and the layer's presents."""
        shape, name = self._shape, f"model.layers.{layer}.attn"
        widths = [shape.heads * shape.head_size, *[shape.kv_heads * shape.head_size] * 2]
        weights = [f"blk.{layer}.{part}" for part in ("attn_q", "attn_k", "attn_v")]
        qkv = self._linear(hidden, weights, widths, f"{name}.qkv_proj")
        pasts, presents = self._caches("past_key_values", layer, "past"), self._caches("present", layer, "total")
        self._graph.inputs.extend(pasts)
        node = ir.node(
            "GroupQueryAttention",
            [qkv, None, None, *pasts, *lengths, *rotary],
            domain=MICROSOFT,
            attributes={
                "num_heads": shape.heads,
                "kv_num_heads": shape.kv_heads,
                "scale": shape.head_size**-0.5,
                "do_rotary": 1,
                "rotary_interleaved": 0,
            },
            outputs=[ir.Value(name=f"/{name}/GroupQueryAttention/output_0"), *presents],
            name=f"/{name}/GroupQueryAttention",
        )
        self._graph.append(node)
        return self._linear(node.outputs[0], [f"blk.{layer}.attn_output"], [shape.hidden], f"{name}.o_proj"), presents

    def _mlp(self, layer: int, hidden: ir.Value) -> ir.Value:
        """SwiGLU: silu(gate) * up, projected down.

        Gate and up are layers of their own although they share an input: a split of their common output would copy it,
        and the up projection's channels can be smoothed alone.
        """
        inner, name = self._shape.inner, f"model.layers.{layer}.mlp"
        gate = self._linear(hidden, [f"blk.{layer}.ffn_gate"], [inner], f"{name}.gate_proj")
        up = self._linear(hidden, [f"blk.{layer}.ffn_up"], [inner], f"{name}.up_proj")
        activated = self._op("Mul", [gate, self._op("Sigmoid", [gate], f"/{name}/Sigmoid")], f"/{name}/act_fn/Mul")
        product = self._op("Mul", [activated, up], f"/{name}/Mul")
        return self._linear(product, [f"blk.{layer}.ffn_down"], [self._shape.hidden], f"{name}.down_proj")

    def _linear(self, x: ir.Value, weights: list[str], widths: list[int], name: str) -> ir.Value:
        """X @ [w1 | w2 | ...], each weight transposed to [in, out]."""
        rows = self._file.size(weights[0])[-1]

        def read() -> Floats:
            parts = [self._weight(weight) for weight in weights]
            return (parts[0] if len(parts) == 1 else np.concatenate(parts)).T

        parts = [self._file.stored(weight) for weight in weights]
        self.stored[f"{name}.MatMul.weight"] = parts[0] if len(parts) == 1 else Joined(parts)
        weight = self._lazy(f"{name}.MatMul.weight", (rows, sum(widths)), read)
        return self._op("MatMul", [x, weight], f"/{name.replace('.', '/')}/MatMul")

    def _norm(self, x: ir.Value, weight: str, name: str) -> ir.Value:
        scale = self._norm_weight(weight, name)
        attributes = {"axis": -1, "epsilon": self._shape.eps, "stash_type": 1}
        return self._op("SimplifiedLayerNormalization", [x, scale], f"/{name}/LayerNorm", attributes)

    def _skip_norm(self, residual: ir.Value, delta: ir.Value, weight: str, name: str) -> tuple[ir.Value, ir.Value]:
        """Norm of residual + delta, and the sum itself."""
        outputs = [ir.Value(name=f"/{name}/output_0"), ir.Value(name=""), ir.Value(name="")]
        total = ir.Value(name=f"/{name}/output_3")
        node = ir.node(
            "SkipSimplifiedLayerNormalization",
            [residual, delta, self._norm_weight(weight, name)],
            domain=MICROSOFT,
            attributes={"epsilon": self._shape.eps},
            outputs=[*outputs, total],
            name=f"/{name}/SkipLayerNorm",
        )
        self._graph.append(node)
        return outputs[0], total

    def _norm_weight(self, weight: str, name: str) -> ir.Value:
        return self._lazy(f"{name}.weight", (self._shape.hidden,), lambda: self._weight(weight))

    def _lengths(self, mask: ir.Value) -> tuple[ir.Value, ir.Value]:
        """Tokens of each row less one, and of the longest row, from the mask."""
        name = "/model/attn_mask_reformat"
        axis, one = self._constant("axis", np.array([1], np.int64)), self._constant("one", np.array(1, np.int64))
        tokens = self._op("ReduceSum", [mask, axis], f"{name}/ReduceSum", {"keepdims": 0})
        less = self._op("Sub", [tokens, one], f"{name}/Sub")
        width = self._op("Gather", [self._op("Shape", [mask], f"{name}/Shape"), one], f"{name}/Gather", {"axis": 0})
        cast = {"to": int(ir.DataType.INT32)}
        return self._op("Cast", [less], f"{name}/Sub/Cast", cast), self._op(
            "Cast", [width], f"{name}/Gather/Cast", cast
        )

    def _rotary_tables(self) -> tuple[ir.Value, ir.Value]:
        """Cosines and sines, [context, rotary / 2] each."""
        shape = self._shape
        frequencies = shape.theta ** -(np.arange(0, shape.rotary, 2) / shape.rotary) / shape.rope_scale
        factors = self._file.rotary_factors()
        if factors is not None:
            frequencies = frequencies / factors

        def table(name: str, function: Callable[[npt.NDArray[np.float64]], npt.NDArray[np.float64]]) -> ir.Value:
            def make() -> Floats:
                return function(np.arange(shape.context)[:, None] * frequencies).astype(np.float32)

            return self._lazy(name, (shape.context, shape.rotary // 2), make)

        return table("cos_cache", np.cos), table("sin_cache", np.sin)

    def _caches(self, kind: str, layer: int, length: str) -> list[ir.Value]:
        shape = self._shape
        sizes: list[int | str] = ["batch_size", shape.kv_heads, f"{length}_sequence_length", shape.head_size]
        return [_value(f"{kind}.{layer}.{side}", ir.DataType.FLOAT, sizes) for side in ("key", "value")]

    def _weight(self, name: str) -> Floats:
        return self._file.weight(name)

    def _constant(self, name: str, array: npt.NDArray[np.int64]) -> ir.Value:
        value = ir.Value(name=f"/model/constants/{name}", const_value=ir.tensor(array))
        self._graph.register_initializer(value)
        return value

    def _lazy(self, name: str, sizes: tuple[int, ...], read: Callable[[], Floats]) -> ir.Value:
        """An initializer whose array is made anew whenever it is asked for."""
        shape = ir.Shape(sizes)
        tensor = ir.LazyTensor(lambda: ir.Tensor(read(), name=name), ir.DataType.FLOAT, shape, name=name)
        value = ir.Value(name=name, const_value=tensor, shape=shape, type=ir.TensorType(ir.DataType.FLOAT))
        self._graph.register_initializer(value)
        return value

    def _op(
        self, op: str, inputs: list[ir.Value], name: str, attributes: Mapping[str, int | float] | None = None
    ) -> ir.Value:
        node = ir.node(op, inputs, attributes=attributes, outputs=[ir.Value(name=f"{name}/output_0")], name=name)
        self._graph.append(node)
        return node.outputs[0]


def _value(name: str, dtype: ir.DataType, sizes: Sequence[int | str]) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(sizes))
