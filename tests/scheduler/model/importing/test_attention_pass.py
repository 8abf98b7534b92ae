"""Attention of ours beside onnxruntime's own, in the same small model, with every option that a graph can choose."""

import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import onnx_ir as ir
import onnxruntime as ort
import pytest

from scheduler.model.importing import ImportOptions, Silent, UnsupportedModel, import_model
from tests.conftest import model_folder
from tests.scheduler.model.importing.runner import Floats, Rows, Runner

TOKENS = [int(token) for token in np.random.default_rng(2).integers(3, 600, 70)]
HEAD_SIZE = 32
STEPS = [17, 1, 1, 15, 30, 1, 1, 4]
"""Rows of each step: what was decoded and what was prefilled is attended to alike."""


def attentions(graph: ir.Graph) -> list[ir.Node]:
    return [node for node in graph if node.op_type == "GroupQueryAttention"]


def choosing(**attributes: float) -> Callable[[ir.Graph], None]:
    """Set attributes of every attention node."""

    def change(graph: ir.Graph) -> None:
        for node in attentions(graph):
            for name, value in attributes.items():
                made = ir.AttrInt64(name, value) if isinstance(value, int) else ir.AttrFloat32(name, value)
                node.attributes[name] = made

    return change


def half_rotates(graph: ir.Graph) -> None:
    """Cut the rotary tables, so that the first half of each head's channels rotates."""
    for name in ("cos_cache", "sin_cache"):
        value = graph.initializers[name]
        assert value.const_value is not None
        table = np.ascontiguousarray(value.const_value.numpy()[:, :8])
        value.const_value, value.shape = ir.tensor(table, name=name), ir.Shape(table.shape)


def both(*changes: Callable[[ir.Graph], None]) -> Callable[[ir.Graph], None]:
    def change(graph: ir.Graph) -> None:
        for one in changes:
            one(graph)

    return change


CHANGES: dict[str, Callable[[ir.Graph], None]] = {
    "as the builder makes it": choosing(),
    "a scale": choosing(scale=0.4),
    "the scale that none stands for": choosing(scale=0.0),
    "a soft cap": choosing(softcap=2.0, scale=0.5),
    "a window of 1": choosing(local_window_size=1),
    "a window of 2": choosing(local_window_size=2),
    "a window of 33": choosing(local_window_size=33),
    "a window longer than the text": choosing(local_window_size=200),
    "a sink whose score is 0": choosing(smooth_softmax=1),
    "neighbours rotate": choosing(rotary_interleaved=1),
    "half rotates": half_rotates,
    "neighbours of half rotate": both(half_rotates, choosing(rotary_interleaved=1)),
    "all at once": both(half_rotates, choosing(softcap=3.0, scale=0.7, local_window_size=19, smooth_softmax=1)),
}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a tiny folder of floats, to be changed."""
    target = tmp_path / "source"
    shutil.copytree(model_folder("llama-fp32"), target)
    for path in (target, *target.iterdir()):
        path.chmod(0o755)
    return target


def changed(folder: Path, change: Callable[[ir.Graph], None]) -> None:
    model = ir.load(folder / "model.onnx")
    change(model.graph)
    ir.save(model, folder / "model.onnx")


def stock(folder: Path) -> Floats:
    """What onnxruntime makes of the tokens at once, [tokens, V]."""
    session = ort.InferenceSession(folder / "model.onnx", providers=["CPUExecutionProvider"])
    feeds: dict[str, np.ndarray[tuple[int, ...], np.dtype[np.int64 | np.float32]]] = {
        value.name: np.zeros((1, value.shape[1], 0, HEAD_SIZE), np.float32)
        for value in session.get_inputs()
        if "past" in value.name
    }
    feeds |= {"input_ids": np.array([TOKENS]), "attention_mask": np.ones((1, len(TOKENS)), np.int64)}
    logits: Floats = session.run(["logits"], feeds)[0][0]
    return logits


@pytest.mark.parametrize("name", CHANGES)
def test_it_is_what_onnxruntime_makes_of_the_same_node(name: str, folder: Path, tmp_path: Path) -> None:
    changed(folder, CHANGES[name])
    import_model(folder, tmp_path / "packed", ImportOptions(weights="float32", kv_cache="float32"), Silent())
    runner, expected, done = Runner(tmp_path / "packed"), stock(folder), 0
    for count in STEPS:
        logits = runner.step([Rows(1, TOKENS[done : done + count])])[0]
        done += count
        np.testing.assert_allclose(logits, expected[done - 1], atol=2e-4)
    assert done == len(TOKENS)


def test_the_changes_change_something(folder: Path) -> None:
    before = stock(folder)
    for name, change in list(CHANGES.items())[3:]:
        shutil.copy(model_folder("llama-fp32") / "model.onnx", folder / "model.onnx")
        changed(folder, change)
        assert (np.abs(stock(folder) - before).max() > 1e-3) == ("longer than the text" not in name), name


def test_rotary_tables_that_are_computed_are_refused_with_the_node(folder: Path, tmp_path: Path) -> None:
    def compute(graph: ir.Graph) -> None:
        node = attentions(graph)[0]
        table = node.inputs[7]
        assert table is not None
        made = ir.node("Abs", [table], name="/computed")
        graph.insert_before(node, made)
        node.replace_input_with(7, made.outputs[0])

    changed(folder, compute)
    with pytest.raises(UnsupportedModel, match=r"GroupQueryAttention \(.*layers\.0.*\) has no constant rotary tables"):
        import_model(folder, tmp_path / "packed", ImportOptions(), Silent())
