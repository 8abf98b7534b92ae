"""How commands fail: one sentence and status 1, whatever it was."""

import json
from pathlib import Path

import pytest

from server.config import ConfigError
from server.reason import reason
from tests.conftest import Packed, model_folder
from tests.server.live import told


def raised(error: Exception) -> Exception:
    """The error with a traceback."""
    try:
        raise error
    except Exception as caught:
        return caught


def test_words_for_people_stay_as_they_are_in_one_line() -> None:
    assert reason(raised(ConfigError("a\nb"))) == "a b"


def test_an_error_that_nobody_foresaw_says_where_it_came_from() -> None:
    said = reason(raised(KeyError("model")))
    assert "KeyError ('model'; test_reason.py, line 17)" in said


def test_files_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError) as caught:
        (tmp_path / "none").read_text()
    assert str(tmp_path / "none") in reason(caught.value)
    assert "No such file" in reason(caught.value)


def test_markup_in_a_path_is_shown_as_it_is(tmp_path: Path) -> None:
    status, said = told("serve", str(tmp_path / "[bold]x[/nothing]"), "--cache-dir", str(tmp_path), "--port", "0")
    assert status == 1
    assert "[bold]x[/nothing]" in said


def test_an_import_into_the_folder_one_is_in_is_refused_in_one_sentence(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    status, said = told("import", str(model_folder("llama-int4")), ".")
    assert status == 1
    assert said.startswith(f"paceline: {tmp_path} is there already")
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize("spoiled", ["genai_config.json", "paceline.json", "tokenizer.json", "model.onnx"])
def test_a_spoiled_packed_folder_is_told_in_one_sentence(spoiled: str, tmp_path: Path, packed: Packed) -> None:
    folder = tmp_path / "spoiled"
    folder.mkdir()
    for file in packed("llama-int4").iterdir():
        (folder / file.name).write_bytes(file.read_bytes())
    (folder / spoiled).write_text(json.dumps({"model": {}}))
    status, said = told("serve", str(folder), "--port", "0")
    assert status == 1
    assert "Traceback" not in said
    assert "not foreseen" not in said
    assert "terminate called" not in said
    assert spoiled in said or str(folder) in said
