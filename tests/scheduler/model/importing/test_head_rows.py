"""A graph that keeps the last position's logits alone generates what the whole graph does."""

import json
import shutil
from pathlib import Path
from typing import Any

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from scheduler.model.importing import ImportOptions, Silent, UnsupportedModel, import_model
from tests.conftest import AS_IT_IS, model_folder
from tests.scheduler.model.importing.runner import Runner, generate

FORMS = ["gather", "slice", "gather behind the head", "split around the head"]
MODELS = ["llama-int4", "gemma2-int4", "granite-int4"]
"""A plain head, one with a soft cap behind it, one that is scaled."""
TYPES = {"tensor(int64)": np.int64, "tensor(float)": np.float32}


def constant(graph: ir.Graph, name: str, numbers: int | list[int]) -> ir.Value:
    value = ir.Value(name=name, const_value=ir.tensor(np.array(numbers, np.int64)))
    graph.register_initializer(value)
    return value


def before(graph: ir.Graph, reader: ir.Node, op: str, inputs: list[ir.Value], **attributes: int) -> None:
    """Put a node on the way to a reader's first input."""
    node = ir.node(op, inputs, attributes=attributes, outputs=[ir.Value(name=f"/cut/{op}")], name=f"/cut/{op}")
    graph.insert_before(reader, node)
    reader.replace_input_with(0, node.outputs[0])


def behind(graph: ir.Graph, op: str, numbers: list[int], **attributes: int) -> None:
    """Put a node between the logits and the output."""
    old = graph.outputs[0]
    new = ir.Value(name="logits", type=old.type)
    old.name = f"/raw/{op}"
    graph.append(ir.node(op, [old, constant(graph, f"cut.{op}", numbers)], attributes=attributes, outputs=[new]))
    graph.outputs[0] = new


def prune(graph: ir.Graph, form: str) -> None:
    """Let one row be left of the logits, as exporters do it."""
    head = [node for node in graph if node.op_type in ("MatMul", "MatMulNBits")][-1]
    hidden = head.inputs[0]
    assert hidden is not None
    width = graph.outputs[0].shape
    assert width is not None
    if form == "slice":
        numbers = (constant(graph, f"cut.{i}", [n]) for i, n in enumerate((-1, 2**63 - 1, 1)))
        before(graph, head, "Slice", [hidden, *numbers])
    elif form == "gather behind the head":
        behind(graph, "Gather", [-1], axis=1)
    else:
        before(graph, head, "Gather", [hidden, constant(graph, "cut.last", -1)], axis=1)
        if form == "gather":
            cut = head.inputs[0]
            assert cut is not None
            before(graph, head, "Unsqueeze", [cut, constant(graph, "cut.axis", [1])])
        else:
            behind(graph, "Unsqueeze", [1])
    graph.outputs[0].shape = ir.Shape(["batch_size", 1, width[-1]])


@pytest.fixture
def pruned(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    """A folder of a tiny model whose head is pruned: (model, form)."""
    name, form = request.param
    folder = tmp_path / str(name)
    shutil.copytree(model_folder(name), folder)
    model = ir.load(folder / "model.onnx")
    prune(model.graph, form)
    (folder / "model.onnx").chmod(0o644)
    ir.save(model, folder / "model.onnx")
    return folder


@pytest.mark.parametrize("pruned", [(m, f) for m in MODELS for f in FORMS], indirect=True, ids="-".join)
def test_it_generates_what_the_whole_graph_does(pruned: Path, tmp_path: Path) -> None:
    manifest = import_model(pruned, tmp_path / "packed", AS_IT_IS, Silent())
    assert any("prune_lm_head" in note for note in manifest.done)
    cases: list[dict[str, Any]] = json.loads((pruned / "oracle.json").read_text())["cases"]
    prompts = [case["ids"] for case in cases]
    import_model(model_folder(pruned.name), tmp_path / "whole", AS_IT_IS, Silent())
    made = [generate(Runner(tmp_path / name), prompts, 24, []) for name in ("packed", "whole")]
    assert made[0] == made[1]


@pytest.mark.parametrize("pruned", [("llama-int4", form) for form in FORMS], indirect=True, ids="-".join)
def test_the_pruned_graph_of_these_tests_runs_and_gives_one_row(pruned: Path) -> None:
    session = ort.InferenceSession(pruned / "model.onnx", providers=["CPUExecutionProvider"])
    sizes = {"batch_size": 1, "sequence_length": 3, "total_sequence_length": 3, "past_sequence_length": 0}
    feeds = {
        value.name: np.ones([sizes.get(n, 32) if isinstance(n, str) else n for n in value.shape], TYPES[value.type])
        for value in session.get_inputs()
    }
    assert session.run(["logits"], feeds)[0].shape == (1, 1, 640)


@pytest.mark.parametrize("pruned", [("llama-int4", "gather")], indirect=True, ids="-".join)
def test_int8_layers_are_made_of_it_too(pruned: Path, tmp_path: Path) -> None:
    options = ImportOptions(context=256, weights="int8", kv_cache="float32")
    import_model(pruned, tmp_path / "packed", options, Silent())
    import_model(model_folder("llama-int4"), tmp_path / "whole", options, Silent())
    prompt = [list(range(5, 40))]
    made = [generate(Runner(tmp_path / name), prompt, 12, []) for name in ("packed", "whole")]
    assert made[0] == made[1]


def test_another_row_than_the_last_is_refused_as_before(tmp_path: Path) -> None:
    folder = tmp_path / "source"
    shutil.copytree(model_folder("llama-int4"), folder)
    model = ir.load(folder / "model.onnx")
    behind(model.graph, "Gather", [0], axis=1)
    model.graph.outputs[0].shape = ir.Shape(["batch_size", 1, 640])
    (folder / "model.onnx").chmod(0o644)
    ir.save(model, folder / "model.onnx")
    with pytest.raises(UnsupportedModel, match="one position alone"):
        import_model(folder, tmp_path / "packed", AS_IT_IS, Silent())
