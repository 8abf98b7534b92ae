import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from gguf import GGMLQuantizationType
from hypothesis import given
from hypothesis import strategies as st

from scheduler.model.importing import BrokenSource, ImportFailed, ImportOptions, Silent, UnsupportedModel, import_model
from scheduler.model.importing.gguf_rows import halves
from scheduler.model.importing.gguf_source import read_gguf
from scheduler.model.importing.manifest import KvCache, Weights
from tests.scheduler.model.importing.runner import Floats, Rows, Runner
from tests.scheduler.model.importing.tiny_gguf import TinyLlama

Kind = GGMLQuantizationType
MODELS = {
    "untied": TinyLlama(),
    "tied": TinyLlama(tied=True),
    "llama 3's scaled frequencies": TinyLlama(rope_factors=True),
    "linear rope scaling": TinyLlama(linear_scale=4.0),
    "every head its own key": TinyLlama(kv_heads=4),
    "heads wider than the hidden size": TinyLlama(head_size=32, rotary=32),
    "half of each head rotates": TinyLlama(head_size=32, rotary=16),
    "half precision": TinyLlama(kind=Kind.F16),
    "bfloat16": TinyLlama(kind=Kind.BF16),
    "8 bits": TinyLlama(kind=Kind.Q8_0),
    "4 bits": TinyLlama(kind=Kind.Q4_1),
    "4 bits without minima": TinyLlama(kind=Kind.Q4_0, tied=True),
    "5 bits": TinyLlama(kind=Kind.Q5_0),
    "5 bits with minima": TinyLlama(kind=Kind.Q5_1, tied=True),
    "2 bits in blocks of their own": TinyLlama(kind=Kind.TQ2_0, hidden=256, inner=256, head_size=64, rotary=64),
}
TOKENS = [5, 17, 3, 99, 60, 42, 8, 120, 77]


def logits(folder: Path) -> Floats:
    """Logits of the tokens' last five: a chunk of five, then four decode steps beside another request."""
    runner = Runner(folder, slots=2)
    out = [runner.step([Rows(0, TOKENS[:5])])]
    for step, token in enumerate(TOKENS[5:]):
        other = Rows(1, [9, 8, 7]) if step == 0 else Rows(1, [step])
        out.append(runner.step([Rows(0, [token]), other])[:1])
    return np.concatenate(out)


@pytest.mark.parametrize("name", MODELS)
def test_the_float_graph_computes_what_a_llama_computes(name: str, tmp_path: Path) -> None:
    model = replace(MODELS[name], weights={})
    options = ImportOptions(weights="float32", kv_cache="float32")
    import_model(model.write(tmp_path / "tiny.gguf"), tmp_path / "packed", options, Silent())
    np.testing.assert_allclose(logits(tmp_path / "packed"), model.forward(TOKENS)[4:], atol=1e-4)


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("weights", ["keep", "int8"])
def test_the_operators_stay_near_what_a_llama_computes(weights: Weights, name: str, tmp_path: Path) -> None:
    """Rows are rounded to 8 bits; kept floats are not."""
    model = replace(MODELS[name], weights={})
    options = ImportOptions(weights=weights)
    import_model(model.write(tmp_path / "tiny.gguf"), tmp_path / "packed", options, Silent())
    exact = model.forward(TOKENS)[4:]
    assert np.linalg.norm(logits(tmp_path / "packed") - exact) < 0.04 * np.linalg.norm(exact)


@pytest.mark.parametrize("weights", ["keep", "int8"])
@pytest.mark.parametrize("kv_cache", ["float32", "float16", "int8"])
def test_logits_are_the_same_bits_alone_and_in_company(weights: Weights, kv_cache: KvCache, tmp_path: Path) -> None:
    source, options = (
        TinyLlama(kind=Kind.Q4_1).write(tmp_path / "tiny.gguf"),
        ImportOptions(None, None, weights, kv_cache),
    )
    import_model(source, tmp_path / "packed", options, Silent())
    alone, mixed = Runner(tmp_path / "packed"), Runner(tmp_path / "packed")
    first = alone.step([Rows(0, TOKENS)])[0]
    assert np.array_equal(first, mixed.step([Rows(1, [4, 5, 6]), Rows(0, TOKENS), Rows(3, [50] * 20)])[1])
    second = alone.step([Rows(0, [11])])[0]
    assert np.array_equal(second, mixed.step([Rows(2, [4, 5, 6]), Rows(1, [9]), Rows(0, [11])])[2])


@given(heads=st.integers(1, 4), pairs=st.integers(1, 8), still=st.integers(0, 4), width=st.integers(1, 3))
def test_the_row_order_of_queries_is_undone(heads: int, pairs: int, still: int, width: int) -> None:
    rows = np.arange(heads * (2 * pairs + still) * width, dtype=np.float32).reshape(heads, -1, width)
    rotating = rows[:, : 2 * pairs].reshape(heads, 2, pairs, width).swapaxes(1, 2).reshape(heads, 2 * pairs, width)
    as_gguf = np.concatenate([rotating, rows[:, 2 * pairs :]], axis=1).reshape(-1, width)
    assert np.array_equal(halves(as_gguf, heads, 2 * pairs), rows.reshape(-1, width))


def test_the_configuration_lists_every_end_token(tmp_path: Path) -> None:
    source = TinyLlama().write(tmp_path / "tiny.gguf", tokenizer__ggml__eot_token_id=7)
    manifest = import_model(source, tmp_path / "packed", ImportOptions(name="mine"), Silent())
    model = json.loads((tmp_path / "packed" / "genai_config.json").read_text())["model"]
    assert model["eos_token_id"] == [1, 7]
    assert model["context_length"] == manifest.max_context == 128
    assert manifest.name == "mine"


@pytest.mark.parametrize(
    ("extra", "named"),
    [
        ({"llama__rope__scaling__type": "yarn"}, "llama.rope.scaling.type is yarn"),
        ({"llama__expert_count": 8}, "llama.expert_count"),
        ({"llama__attention__sliding_window": 64}, "llama.attention.sliding_window"),
        ({"split__count": 2}, "split.count"),
    ],
)
def test_metadata_that_changes_the_answers_is_refused_by_name(
    extra: dict[str, str | float], named: str, tmp_path: Path
) -> None:
    with pytest.raises(UnsupportedModel, match=named):
        read_gguf(TinyLlama().write(tmp_path / "tiny.gguf", **extra), None)


def test_a_tensor_that_is_not_understood_is_refused_by_name(tmp_path: Path) -> None:
    source = TinyLlama().write(tmp_path / "tiny.gguf")
    renamed = source.read_bytes().replace(b"blk.1.attn_v.weight", b"blk.1.attn_v.biases")
    source.write_bytes(renamed)
    with pytest.raises(UnsupportedModel, match=r"blk\.1\.attn_v\.biases"):
        read_gguf(source, None)


def test_a_file_cut_short_is_called_broken(tmp_path: Path) -> None:
    source = TinyLlama().write(tmp_path / "tiny.gguf")
    source.write_bytes(source.read_bytes()[:-5000])
    with pytest.raises(BrokenSource, match="cut short"):
        read_gguf(source, None)


def test_a_context_past_the_models_own_is_refused(tmp_path: Path) -> None:
    with pytest.raises(ImportFailed, match="1 to 128"):
        read_gguf(TinyLlama().write(tmp_path / "tiny.gguf"), 129)


def test_what_the_file_recommends_for_sampling_goes_with_the_model_unless_its_authors_say_it_beside_it(
    tmp_path: Path,
) -> None:
    recommended: dict[str, str | float] = {"general__sampling__temp": 0.6, "general__sampling__top_k": 20}
    file = TinyLlama().write(tmp_path / "tiny.gguf", **recommended)
    packed = tmp_path / "packed" / "generation_config.json"
    import_model(file, packed.parent, ImportOptions(), Silent())
    assert json.loads(packed.read_text()) == {"temperature": 0.6, "top_k": 20}
    (tmp_path / "generation_config.json").write_text('{"top_p": 0.9}')
    import_model(file, packed.parent, ImportOptions(), Silent())
    assert json.loads(packed.read_text()) == {"top_p": 0.9}
    (tmp_path / "generation_config.json").unlink()
    import_model(TinyLlama().write(file), packed.parent, ImportOptions(), Silent())
    assert not packed.exists()
