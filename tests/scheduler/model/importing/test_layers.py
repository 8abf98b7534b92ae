"""Which layers of a graph become operators of ours, and that what is left where it was is right."""

import shutil
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from scheduler.model.importing import ImportOptions, Silent, import_model
from scheduler.model.importing.manifest import Weights
from tests.conftest import ALL_FOLDERS, model_folder
from tests.scheduler.model.importing.runner import Floats, Rows, Runner

TOKENS = [int(token) for token in np.random.default_rng(2).integers(3, 600, 40)]
PLAIN = {"Linear": 4, "LinearAdd": 4, "LinearPick": 1, "Attention": 2, "Candidates": 1}
"""Two layers: qkv and the gated pair; two projections into the residual; the head."""

OURS = {
    "gemma2": {**PLAIN, "Linear": 8, "LinearAdd": 0, "Embed": 1},  # norms lie between projections and the residual
    "gpt-oss": {**PLAIN, "LinearAdd": 2},  # experts are onnxruntime's; their routers are ours
    "qwen2": {**PLAIN, "Embed": 1},
}


def operators(folder: Path) -> tuple[Counter[str], Counter[str]]:
    """How many nodes there are of each operator of ours, and of others."""
    nodes = list(ir.load(folder / "model.onnx").graph)
    ours = Counter(node.op_type for node in nodes if node.domain == "paceline")
    return ours, Counter(node.op_type for node in nodes if node.domain != "paceline")


@pytest.mark.parametrize("name", ALL_FOLDERS)
@pytest.mark.parametrize("weights", ["keep", "int8"])
def test_every_linear_layer_of_every_family_is_ours(weights: Weights, name: str, tmp_path: Path) -> None:
    import_model(model_folder(name), tmp_path / "packed", ImportOptions(256, weights=weights), Silent())
    ours, others = operators(tmp_path / "packed")
    if weights == "keep" and name.endswith("fp32"):
        assert ours == {"Attention": 2, "Candidates": 1}
    else:
        assert ours == Counter(OURS.get(name.rpartition("-")[0], PLAIN))
        assert others.keys().isdisjoint({"MatMul", "MatMulNBits", "Sigmoid", "Gelu", "Split", "GroupQueryAttention"})
        assert name.startswith(("gemma2", "gpt-oss")) or "SimplifiedLayerNormalization" not in others


@pytest.mark.parametrize(
    ("name", "weights"),
    [("qwen2-fp32", "int8"), ("qwen2-int4", "int8"), ("qwen2-int4", "keep"), ("gemma2-fp32", "int8")],
)
def test_a_tied_table_is_one_piece_of_memory_with_its_head(name: str, weights: Weights, tmp_path: Path) -> None:
    import_model(model_folder(name), tmp_path / "packed", ImportOptions(weights=weights), Silent())
    places = {
        node.op_type: [node.attributes[key].value for key in ("w_at", "form", "k", "n")]
        for node in ir.load(tmp_path / "packed" / "model.onnx").graph
        if node.op_type in ("Embed", "LinearPick")
    }
    assert places["Embed"] == places["LinearPick"]


# ---- graphs that the folders do not have ----


def node_named(graph: ir.Graph, part: str) -> ir.Node:
    (found,) = (node for node in graph if part in str(node.name))
    return found


def constant(
    graph: ir.Graph, name: str, array: np.ndarray[tuple[int, ...], np.dtype[np.float32 | np.int64]]
) -> ir.Value:
    value = ir.Value(name=name, const_value=ir.tensor(array, name=name))
    graph.register_initializer(value)
    return value


def floats_of(value: ir.Value | None) -> Floats:
    assert value is not None
    assert value.const_value is not None
    return np.array(value.const_value.numpy(), np.float32)


def behind(graph: ir.Graph, node: ir.Node, op: str, other: ir.Value | None, **attributes: ir.Attr) -> ir.Node:
    """Put a node between a node's first output and all that read it."""
    inputs = [node.outputs[0]] if other is None else [node.outputs[0], other]
    made = ir.Node("", op, inputs, attributes.values(), name=f"{node.name}/{op}")
    made.outputs[0].name = f"{node.outputs[0].name}/{op}"
    graph.insert_after(node, made)
    ir.convenience.replace_all_uses_with(node.outputs[0], made.outputs[0])
    made.replace_input_with(0, node.outputs[0])
    return made


def apart(graph: ir.Graph, *, biased: bool) -> None:
    """Give query, key and value of the first layer a projection each."""
    packed, attention = node_named(graph, "layers.0/attn/qkv_proj/MatMul"), node_named(graph, "layers.0/attn/Group")
    parts = np.split(floats_of(packed.inputs[1]), [128, 192], axis=1)
    for place, part in enumerate(parts):
        weight = constant(graph, f"apart.{place}", np.ascontiguousarray(part))
        node = ir.node("MatMul", [packed.inputs[0], weight], name=f"/apart/{place}")
        graph.insert_before(attention, node)
        attention.replace_input_with(place, node.outputs[0])
        if biased and place != 1:
            behind(
                graph,
                node,
                "Add",
                constant(graph, f"bias.{place}", np.linspace(-1, 1, part.shape[1], dtype=np.float32)),
            )
    graph.remove(packed, safe=True)


def bias_and_factor(graph: ir.Graph) -> None:
    """Of an output projection: (x W + b) * 0.7."""
    node = node_named(graph, "layers.0/attn/o_proj/MatMul")
    added = behind(graph, node, "Add", constant(graph, "more.bias", np.linspace(-0.5, 0.5, 128, dtype=np.float32)))
    behind(graph, added, "Mul", constant(graph, "more.factor", np.array(0.7, np.float32)))


def factor_and_bias(graph: ir.Graph) -> None:
    """The other way round, which the operator does not have in one: the bias stays a node."""
    node = node_named(graph, "layers.0/attn/o_proj/MatMul")
    scaled = behind(graph, node, "Mul", constant(graph, "more.factor", np.array(0.7, np.float32)))
    behind(graph, scaled, "Add", constant(graph, "more.bias", np.linspace(-0.5, 0.5, 128, dtype=np.float32)))


def activation(op: str, **attributes: ir.Attr) -> Callable[[ir.Graph], None]:
    """Put another activation in the place of the first layer's."""

    def change(graph: ir.Graph) -> None:
        old, gate = node_named(graph, "layers.0/mlp/act_fn/Mul"), node_named(graph, "layers.0/mlp/gate_proj/MatMul")
        domain = "com.microsoft" if op in ("FastGelu", "QuickGelu") else ""
        new = ir.Node(domain, op, [gate.outputs[0]], attributes.values(), name=f"/other/{op}")
        graph.insert_after(old, new)
        ir.convenience.replace_all_uses_with(old.outputs[0], new.outputs[0])

    return change


def gate_read_twice(graph: ir.Graph) -> None:
    """Something else reads what the gates make."""
    gate, down = node_named(graph, "layers.0/mlp/gate_proj/MatMul"), node_named(graph, "layers.0/mlp/Mul")
    behind(graph, down, "Add", gate.outputs[0])


def norm_read_twice(graph: ir.Graph) -> None:
    """Something else reads a norm that layers take over."""
    norm = node_named(graph, "layers.1/post_attention_layernorm")
    down = node_named(graph, "layers.1/mlp/down_proj/MatMul")
    behind(graph, down, "Add", norm.outputs[0])


def layer_norms(graph: ir.Graph) -> None:
    """Norms of the centred kind, with a weight and without a bias."""
    old = node_named(graph, "layers.0/input_layernorm/LayerNorm")
    new = ir.Node("", "LayerNormalization", old.inputs, [ir.AttrFloat32("epsilon", 1e-5)], name="/centred")
    graph.insert_after(old, new)
    ir.convenience.replace_all_uses_with(old.outputs[0], new.outputs[0])
    graph.remove(old, safe=True)


def biased_layer_norm(graph: ir.Graph) -> None:
    """With a bias, which the operator has not: the norm stays a node."""
    layer_norms(graph)
    norm = node_named(graph, "/centred")
    bias = constant(graph, "norm.bias", np.linspace(-1, 1, 128, dtype=np.float32))
    new = ir.Node("", "LayerNormalization", [*norm.inputs, bias], norm.attributes.values(), name="/biased")
    graph.insert_after(norm, new)
    ir.convenience.replace_all_uses_with(norm.outputs[0], new.outputs[0])
    graph.remove(norm, safe=True)


CHANGES: dict[str, tuple[Callable[[ir.Graph], None], dict[str, int], set[str]]] = {
    "projections apart": (lambda g: apart(g, biased=False), {}, set()),
    "biased projections apart": (lambda g: apart(g, biased=True), {}, set()),
    "a bias and a factor": (bias_and_factor, {}, set()),
    "a factor and a bias": (factor_and_bias, {"Linear": 5, "LinearAdd": 3}, {"Add"}),
    "GELU by tanh": (activation("Gelu", approximate=ir.AttrString("approximate", "tanh")), {}, set()),
    "GELU by tanh in one node": (activation("FastGelu"), {}, set()),
    "GELU by erf": (activation("Gelu"), {"Linear": 5}, {"Gelu", "Mul"}),
    "SiLU in one node": (activation("QuickGelu", alpha=ir.AttrFloat32("alpha", 1.0)), {}, set()),
    "QuickGELU": (activation("QuickGelu"), {"Linear": 5}, {"QuickGelu", "Mul"}),
    "ReLU": (activation("Relu"), {"Linear": 5}, {"Relu", "Mul"}),
    "gates that are read twice": (gate_read_twice, {"Linear": 5}, {"Sigmoid", "Mul", "Add"}),
    "a norm that is read twice": (norm_read_twice, {}, {"SimplifiedLayerNormalization", "Add"}),
    "a centred norm": (layer_norms, {}, set()),
    "a centred norm with a bias": (biased_layer_norm, {}, {"LayerNormalization"}),
}


def stock(folder: Path) -> Floats:
    """What onnxruntime makes of the tokens, [V]."""
    session = ort.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    feeds: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.int64 | np.float32]]] = {
        value.name: np.zeros((1, value.shape[1], 0, 32), np.float32)
        for value in session.get_inputs()
        if "past" in value.name
    }
    feeds |= {"input_ids": np.array([TOKENS]), "attention_mask": np.ones((1, len(TOKENS)), np.int64)}
    logits: Floats = session.run(["logits"], feeds)[0][0, -1]
    return logits


CHOICES: tuple[Weights, Weights] = ("float32", "int8")


def made(source: Path, target: Path, weights: Weights) -> Floats:
    """What the operators make of the tokens, [V]."""
    import_model(source, target, ImportOptions(weights=weights, kv_cache="float32"), Silent())
    logits: Floats = Runner(target).step([Rows(0, TOKENS)])[0]
    return logits


@pytest.mark.parametrize("name", CHANGES)
def test_a_changed_graph_computes_what_onnxruntime_does(name: str, tmp_path: Path) -> None:
    change, ours, others = CHANGES[name]
    source = tmp_path / "source"
    shutil.copytree(model_folder("llama-fp32"), source)
    (source / "model.onnx").chmod(0o644)
    before, model = stock(source), ir.load(source / "model.onnx")
    change(model.graph)
    ir.save(model, source / "model.onnx")
    expected = stock(source)
    assert (np.abs(expected - before).max() > 0.02) == (name not in ("projections apart", "SiLU in one node"))
    exact, rounded = (made(source, tmp_path / name, name) for name in CHOICES)
    np.testing.assert_allclose(exact, expected, atol=2e-4)
    assert np.linalg.norm(rounded - expected) < 0.1 * np.linalg.norm(expected)
    found, left = operators(tmp_path / "int8")
    assert found == Counter({**PLAIN, **ours})
    assert left.keys() - {"Gather", "Constant"} == others
