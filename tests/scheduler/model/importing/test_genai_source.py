import json
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import onnx_ir as ir
import pytest
from msgspec.structs import replace

from scheduler.model.importing import BrokenSource, ImportFailed, ImportOptions, Silent, UnsupportedModel, import_model
from scheduler.model.importing.genai_source import read_genai
from tests.conftest import AS_IT_IS, model_folder
from tests.scheduler.model.importing.runner import Runner


def attention(graph: ir.Graph) -> ir.Node:
    return next(node for node in graph if node.op_type == "GroupQueryAttention")


def replace_attention(graph: ir.Graph, op: str, **extra: ir.Value) -> None:
    """Put another operator, or other inputs, in the place of the first attention."""
    node = attention(graph)
    inputs = [*node.inputs, *[None] * (17 - len(node.inputs))]
    for position, value in extra.items():
        inputs[int(position.removeprefix("input_"))] = value
        graph.inputs.append(value)
    outputs = [ir.Value(name=f"new.{output.name}", type=output.type, shape=output.shape) for output in node.outputs]
    new = ir.Node(node.domain, op, inputs, node.attributes.values(), outputs=outputs, name="/changed")
    graph.insert_before(node, new)
    ir.convenience.replace_all_uses_with(node.outputs, outputs, replace_graph_outputs=True)
    graph.remove(node, safe=True)


def value(name: str, dtype: ir.DataType = ir.DataType.INT64) -> ir.Value:
    return ir.Value(name=name, type=ir.TensorType(dtype), shape=ir.Shape(["b", "s"]))


def half_cache(graph: ir.Graph) -> None:
    for position in (3, 4):
        past = attention(graph).inputs[position]
        assert past is not None
        past.type = ir.TensorType(ir.DataType.FLOAT16)


def add_node(op: str) -> Callable[[ir.Graph], None]:
    def change(graph: ir.Graph) -> None:
        graph.append(ir.node(op, [graph.inputs[0]], name="/added"))

    return change


def use_mask(position: int) -> Callable[[ir.Graph], None]:
    """Multiply the embeddings (0) or the logits (-1) by something made from the attention mask."""

    def change(graph: ir.Graph) -> None:
        node = [node for node in graph if node.op_type in ("Gather", "MatMulNBits")][1 if position == 0 else -1]
        total = ir.node("Cast", [graph.inputs[1]], attributes={"to": 1}, name="/mask/Cast")
        scaled = ir.node("Mul", [node.outputs[0], total.outputs[0]], name="/mask/Mul")
        graph.insert_after(node, [total, scaled])
        ir.convenience.replace_all_uses_with(node.outputs[0], scaled.outputs[0], replace_graph_outputs=True)
        scaled.replace_input_with(0, node.outputs[0])
        old, new = node.outputs[0], scaled.outputs[0]
        old.name, new.name, new.type, new.shape = f"raw.{old.name}", old.name, old.type, old.shape

    return change


GRAPHS: dict[str, tuple[Callable[[ir.Graph], None], str]] = {
    "another attention": (lambda g: replace_attention(g, "MultiHeadAttention"), r"MultiHeadAttention \(/changed\)"),
    "paged attention": (lambda g: replace_attention(g, "PagedAttention"), r"PagedAttention \(/changed\)"),
    "sparse attention": (lambda g: replace_attention(g, "SparseAttention"), r"SparseAttention \(/changed\)"),
    "positions": (
        lambda g: replace_attention(g, "GroupQueryAttention", input_9=value("position_ids")),
        r"/changed\) has positions as an input",
    ),
    "an attention bias": (
        lambda g: replace_attention(g, "GroupQueryAttention", input_10=value("bias", ir.DataType.FLOAT)),
        r"/changed\) has an attention bias",
    ),
    "a quantised cache": (
        lambda g: replace_attention(g, "GroupQueryAttention", input_12=value("scale", ir.DataType.FLOAT)),
        r"/changed\) has a quantised cache",
    ),
    "a cache in half precision": (half_cache, r"past_key_values\.0\.key of FLOAT16"),
    "recurrence": (add_node("LSTM"), r"LSTM \(/added\) keeps state"),
    "an image": (lambda g: g.inputs.append(value("pixel_values")), "pixel_values means an image"),
    "embeddings": (lambda g: g.inputs.append(value("inputs_embeds")), "inputs_embeds means embeddings"),
    "a state": (lambda g: g.inputs.append(value("past.0.conv_state")), "past.0.conv_state means recurrent state"),
    "another input": (lambda g: g.inputs.append(value("adapter")), "adapter means something"),
    "a mask that scales": (use_mask(0), r"Cast \(/mask/Cast\) reads the input attention_mask"),
    "logits of two makers": (use_mask(-1), r"the logits pass through Mul \(/mask/Mul\)"),
    "no logits": (lambda g: setattr(g.outputs[0], "name", "hidden_states"), "has no logits"),
}
CONFIGS: dict[str, tuple[dict[str, Any], str]] = {
    "a vision part": ({"vision": {"filename": "vision.onnx"}}, "vision"),
    "an encoder": ({"encoder": {"filename": "encoder.onnx"}}, "encoder"),
    "a pipeline": ({"decoder": {"pipeline": [{}], "filename": "a.onnx", "head_size": 1}}, "pipeline"),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a tiny folder, to be spoiled."""
    target = tmp_path / "source"
    shutil.copytree(model_folder("llama-int4"), target)
    for path in (target, *target.iterdir()):
        path.chmod(0o755)
    return target


@pytest.mark.parametrize("name", GRAPHS)
def test_a_graph_that_cannot_be_packed_is_refused_with_its_node(name: str, folder: Path, tmp_path: Path) -> None:
    change, message = GRAPHS[name]
    model = ir.load(folder / "model.onnx")
    change(model.graph)
    ir.save(model, folder / "model.onnx")
    with pytest.raises(UnsupportedModel, match=message):
        import_model(folder, tmp_path / "packed", replace(AS_IT_IS, context=None), Silent())
    assert not (tmp_path / "packed").exists()


@pytest.mark.parametrize("name", CONFIGS)
def test_a_model_of_several_parts_is_refused(name: str, folder: Path) -> None:
    change, message = CONFIGS[name]
    path = folder / "genai_config.json"
    config = json.loads(path.read_text())
    config["model"] |= change
    path.write_text(json.dumps(config))
    with pytest.raises(UnsupportedModel, match=message):
        read_genai(folder, None)


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("model.onnx", None, "model.onnx is missing"),
        ("model.onnx", b"\xff\xff", "no readable ONNX graph"),
        ("model.onnx.data", None, "model.onnx.data is missing"),
        ("model.onnx.data", b"few", "cut short"),
        ("genai_config.json", b"{", "not a configuration"),
        ("genai_config.json", b'{"model": {"decoder": {}}}', "does not say filename"),
        ("genai_config.json", None, "neither a GGUF file nor a folder"),
    ],
)
def test_a_missing_or_unreadable_file_is_called_broken(
    name: str, content: bytes | None, message: str, folder: Path, tmp_path: Path
) -> None:
    (folder / name).unlink()
    if content is not None:
        (folder / name).write_bytes(content)
    with pytest.raises(BrokenSource, match=message):
        import_model(folder, tmp_path / "packed", replace(AS_IT_IS, context=None), Silent())


def test_the_packed_interface_is_the_documented_one(folder: Path, tmp_path: Path) -> None:
    import_model(folder, tmp_path / "packed", replace(AS_IT_IS, context=None), Silent())
    session = Runner(tmp_path / "packed").session
    assert {value.name: value.shape for value in session.get_inputs()} == {
        "input_ids": [1, "T"],
        "slots": ["T"],
        "positions": ["T"],
        "tables": ["S", "P"],
        "logit_rows": ["R"],
        "temperatures": ["R"],
        "weights": ["W"],
        "cache": ["pages", "B"],
    }
    assert {value.name: value.shape for value in session.get_outputs()} == {
        "logits": [1, "R", 640],
        "top_ids": ["R", 128],
        "top_values": ["R", 128],
        "mass": ["R"],
    }


def test_weights_behind_a_symbolic_link_are_read(folder: Path, tmp_path: Path) -> None:
    import_model(folder, tmp_path / "plain", replace(AS_IT_IS, context=None), Silent())
    (folder / "model.onnx.data").rename(tmp_path / "blob")
    (folder / "model.onnx.data").symlink_to(tmp_path / "blob")
    import_model(folder, tmp_path / "packed", replace(AS_IT_IS, context=None), Silent())
    made = [path.name for path in (tmp_path / "packed").glob("model.onnx*")]
    assert len(made) == 3
    for name in made:
        assert (tmp_path / "packed" / name).read_bytes() == (tmp_path / "plain" / name).read_bytes()
        assert not (tmp_path / "packed" / name).is_symlink()


@pytest.mark.parametrize(
    ("context", "chosen", "served"), [(None, "long", 4096), (257, "long", 4096), (256, "short", 256)]
)
def test_the_context_picks_longropes_tables_once(context: int | None, chosen: str, served: int, tmp_path: Path) -> None:
    source = model_folder("phi3-longrope-int4")
    manifest = import_model(
        source, tmp_path / "packed", ImportOptions(context=context, weights="keep", kv_cache="float32"), Silent()
    )
    assert manifest.rope_switch is not None
    assert (manifest.rope_switch.original, manifest.rope_switch.chosen) == (256, chosen)
    assert manifest.max_context == served
    manifest.check(ImportOptions(context=context))
    with pytest.raises(ImportFailed, match="import it anew"):
        manifest.check(ImportOptions(context=300 if chosen == "short" else 200))
