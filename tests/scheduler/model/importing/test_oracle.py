"""The rewritten graph alone, in the kernels that onnxruntime-genai itself runs: its tokens exactly, int4 included."""

import json
from pathlib import Path
from typing import Any

import pytest

from scheduler.model.importing import ImportOptions, Silent, import_model
from tests.conftest import ALL_FOLDERS, model_folder
from tests.scheduler.model.importing.runner import Rows, Runner, generate

SHORT = 256  # the longrope oracle was made with its short tables


@pytest.fixture(autouse=True)
def _flash(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("ORT_GQA_DISABLE_FLASH_ATTENTION", raising=False)  # the session sets it for the process


@pytest.mark.parametrize("name", ALL_FOLDERS)
def test_every_folder_generates_its_oracle_in_staggered_mixed_steps(name: str, tmp_path: Path) -> None:
    source, target = model_folder(name), tmp_path / name
    manifest = import_model(source, target, ImportOptions(context=SHORT, weights="keep", kv_cache="float32"), Silent())
    cases: list[dict[str, Any]] = json.loads((source / "oracle.json").read_text())["cases"]
    ends = [json.loads((target / "genai_config.json").read_text())["model"]["eos_token_id"]]
    tokens = generate(Runner(target, slots=len(cases)), [case["ids"] for case in cases], len(cases[0]["tokens"]), ends)
    assert tokens == [case["tokens"] for case in cases]
    assert manifest.vocab_size == 640
    assert manifest.max_context == (SHORT if "longrope" in name else manifest.max_context)


@pytest.mark.parametrize("name", ["llama-int4", "gemma2-int4", "gpt-oss-fp32"])
def test_the_first_logits_are_those_of_onnxruntime_genai(name: str, tmp_path: Path) -> None:
    source, target = model_folder(name), tmp_path / name
    import_model(source, target, ImportOptions(weights="keep", kv_cache="float32"), Silent())
    for slot, case in enumerate(json.loads((source / "oracle.json").read_text())["cases"]):
        logits = Runner(target).step([Rows(slot, case["ids"], prefill=True)])[0]
        assert logits[:8].tolist() == pytest.approx(case["first"], abs=2e-4)
