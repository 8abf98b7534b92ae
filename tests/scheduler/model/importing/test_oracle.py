"""Packed graphs against what onnxruntime-genai makes of the same folders."""

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from scheduler.model.importing import ImportOptions, Silent, import_model
from scheduler.model.importing.manifest import KvCache, Weights
from tests.conftest import ALL_FOLDERS, FAMILIES, model_folder
from tests.scheduler.model.importing.runner import Floats, Rows, Runner, gaps

SHORT = 256  # the longrope oracle was made with its short tables
NEAR = 0.15
"""How far rounding rows to 8 bits moves a logit here: a sum whose last bit rounds the other way closes such a gap."""

LOSS = {"gpt-oss": 0.03}
"""Where rounded rows may choose another expert; elsewhere 0.01."""


def cases(source: Path) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads((source / "oracle.json").read_text())["cases"]
    return found


def made(source: Path, target: Path, weights: Weights, kv_cache: KvCache = "float32") -> Path:
    manifest = import_model(source, target, ImportOptions(SHORT, weights=weights, kv_cache=kv_cache), Silent())
    assert manifest.vocab_size == 640
    return target


def found_gaps(source: Path, folder: Path) -> list[float]:
    """The gaps to the oracle's tokens, of all its cases in steps that they share."""
    ends = [json.loads((folder / "genai_config.json").read_text())["model"]["eos_token_id"]]
    known = cases(source)
    all_gaps = gaps(Runner(folder, slots=len(known)), [c["ids"] for c in known], [c["tokens"] for c in known], ends)
    return [gap for one in all_gaps for gap in one]


@pytest.mark.parametrize("name", [name for name in ALL_FOLDERS if name.endswith("fp32")])
def test_a_float_folder_generates_its_oracle(name: str, tmp_path: Path) -> None:
    source = model_folder(name)
    assert not any(found_gaps(source, made(source, tmp_path / name, "float32")))


@pytest.mark.parametrize("name", [name for name in ALL_FOLDERS if name.endswith("int4")])
def test_kept_blocks_generate_the_oracle_but_for_near_ties(name: str, tmp_path: Path) -> None:
    """The oracle's kernels round rows in blocks of 32 too, but sum in another order."""
    source = model_folder(name)
    found = found_gaps(source, made(source, tmp_path / name, "keep"))
    assert max(found) < NEAR
    assert np.count_nonzero(found) <= len(found) // 16


@pytest.mark.parametrize("name", ALL_FOLDERS)
def test_the_first_logits_are_those_of_onnxruntime_genai(name: str, tmp_path: Path) -> None:
    source, exact = model_folder(name), name.endswith("fp32")
    runner = Runner(made(source, tmp_path / name, "float32" if exact else "keep"))
    for slot, case in enumerate(cases(source)):
        logits = runner.step([Rows(slot, case["ids"])])[0]
        assert logits[:8].tolist() == pytest.approx(case["first"], abs=2e-4 if exact else NEAR / 2)


@pytest.mark.parametrize("family", FAMILIES)
@pytest.mark.parametrize("kv_cache", ["float16", "int8"])
def test_int8_layers_and_small_caches_stay_near_every_family_s_own_numbers(
    family: str, kv_cache: KvCache, tmp_path: Path
) -> None:
    source = model_folder(f"{family}-fp32")
    exact = Runner(made(source, tmp_path / "exact", "float32"))
    rounded = Runner(made(source, tmp_path / "rounded", "int8", kv_cache))
    for slot, case in enumerate(cases(source)):
        one, other = (runner.step([Rows(slot, case["ids"])])[0] for runner in (exact, rounded))
        assert divergence(one, other) < LOSS.get(family, 0.01)
        assert not np.array_equal(one, other)


def test_a_head_gives_the_likeliest_tokens_and_their_share(tmp_path: Path) -> None:
    source = model_folder("llama-int4")
    runner = Runner(made(source, tmp_path / "packed", "keep"))
    temperatures = [1.0, 0.5]
    rows = [Rows(slot, case["ids"]) for slot, case in enumerate(cases(source)[:2])]
    logits, (ids, values, mass) = runner.run(rows, temperatures)
    for row, temperature in enumerate(temperatures):
        order = np.lexsort((np.arange(640), -logits[row]))[:128]
        assert ids[row].tolist() == order.tolist()
        assert values[row].tolist() == logits[row][order].tolist()
        expected = np.exp((logits[row].astype(np.float64) - logits[row].max()) / temperature).sum()
        assert mass[row] == pytest.approx(expected, rel=1e-5)


def divergence(one: Floats, other: Floats) -> float:
    """KL in nats between what two rows of logits say."""
    p, q = (x.astype(np.float64) - np.logaddexp.reduce(x.astype(np.float64)) for x in (one, other))
    return float((np.exp(p) * (p - q)).sum())
