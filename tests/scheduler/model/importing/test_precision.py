"""Quantised models beside their own float weights: every choice, on sources of both kinds."""

from pathlib import Path

import msgspec
import numpy as np
import pytest

from scheduler.model.importing import ImportOptions, Silent, import_model, read_manifest
from scheduler.model.importing.genai_source import read_genai
from scheduler.model.importing.limbs import choose
from scheduler.model.importing.logical import LogicalModel
from scheduler.model.importing.precision import decide
from scheduler.model.importing.quality import compare
from scheduler.model.importing.smooth import groups
from scheduler.model.importing.weights import linears
from tests.conftest import model_folder
from tests.scheduler.model.importing.tiny_gguf import TinyLlama

FAMILIES = ["llama-int4", "qwen2-int4", "qwen3-int4", "phi3-int4", "gemma2-int4", "granite-int4", "olmo-int4"]
EXACT = ImportOptions(context=256, weights="float32", kv_cache="float32")
TEXT = {"random": np.random.default_rng(5).integers(7, 600, 120).tolist()}


def kl(source: Path, folder: Path, **options: str) -> float:
    """Mean KL of the source imported with the options to its own weights in float32."""
    for name, chosen in (("exact", EXACT), ("made", msgspec.structs.replace(EXACT, weights="int8", **options))):
        import_model(source, folder / name, chosen, Silent())
    return compare(folder / "exact", folder / "made", TEXT)["random"].kl


@pytest.mark.parametrize("family", FAMILIES)
def test_int8_layers_stay_near_every_family_s_own_weights(family: str, tmp_path: Path) -> None:
    assert kl(model_folder(family), tmp_path, activations="8") < 0.01


@pytest.mark.parametrize("family", ["llama-int4", "qwen2-int4", "gpt-oss-fp32"])
def test_the_second_limb_brings_them_nearer(family: str, tmp_path: Path) -> None:
    source = model_folder(family)
    coarse = kl(source, tmp_path / "8", activations="8")
    fine = kl(source, tmp_path / "16", activations="16")
    assert fine < coarse / 2


@pytest.mark.parametrize("family", ["llama-int4", "qwen2-int4"])
def test_an_int8_cache_stays_near(family: str, tmp_path: Path) -> None:
    source = model_folder(family)
    assert kl(source, tmp_path, activations="16", kv_cache="int8") < 0.01
    manifest = read_manifest(tmp_path / "made")
    assert manifest is not None
    assert (manifest.weights, manifest.kv_cache) == ("int8", "int8")


@pytest.mark.parametrize("tied", [True, False])
def test_a_gguf_file_of_either_kind_of_head_is_quantised_well(tied: bool, tmp_path: Path) -> None:
    source = TinyLlama(context=128, tied=tied).write(tmp_path / "tiny.gguf")
    for name, options in (("exact", EXACT), ("made", ImportOptions(kv_cache="float32"))):
        import_model(source, tmp_path / name, msgspec.structs.replace(options, context=None), Silent())
    text = {"random": np.random.default_rng(5).integers(3, 120, 100).tolist()}
    assert compare(tmp_path / "exact", tmp_path / "made", text)["random"].kl < 0.02


def logical(name: str = "llama-int4") -> LogicalModel:
    return read_genai(model_folder(name), None)


@pytest.mark.parametrize(
    ("options", "memory", "weights", "cache", "says"),
    [
        (ImportOptions(weights="keep"), 2**40, "keep", "float32", "as asked"),
        (ImportOptions(kv_cache="int8"), 2**40, None, "int8", "as asked"),
        (ImportOptions(), 2**16, "keep", "int8", "would need"),
    ],
)
def test_every_choice_is_said_with_its_reason(
    options: ImportOptions, memory: int, weights: str | None, cache: str, says: str
) -> None:
    precision = decide(logical(), options, memory)
    assert weights in (None, precision.weights)
    assert precision.kv_cache == cache
    assert any(says in reason or "no faster" in reason for reason in precision.reasons)


def test_second_limbs_go_where_they_buy_most_until_little_is_lost() -> None:
    found = groups(list(linears(logical().model.graph)))
    lost = {group.name: 0.001 * place for place, group in enumerate(found)}
    chosen = choose(found, lost, allowed=0.004)
    left = sum(lost.values()) - sum(lost[group.name] for group in chosen)
    assert left <= 0.004
    assert left + min(lost[group.name] for group in chosen) > 0.004
    assert choose(found, lost, allowed=1.0) == []
