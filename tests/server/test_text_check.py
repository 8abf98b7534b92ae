"""A folder whose text cannot be served is refused before the work of an import."""

import json
import shutil
import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest

from scheduler.errors import ModelFolderError
from server.text_check import check_text
from tests.conftest import model_folder
from tests.server.live import COMMAND


def without(folder: Path) -> None:
    (folder / "tokenizer.json").unlink()


def cut_short(folder: Path) -> None:
    content = (folder / "tokenizer.json").read_bytes()
    (folder / "tokenizer.json").write_bytes(content[: len(content) // 2])


def empty(folder: Path) -> None:
    (folder / "tokenizer.json").write_bytes(b"")


def other_decoder(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    tokenizer["decoder"] = {"type": "WordPiece", "prefix": "##", "cleanup": True}
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer))


def no_decoder(folder: Path) -> None:
    tokenizer = json.loads((folder / "tokenizer.json").read_text())
    (folder / "tokenizer.json").write_text(json.dumps(tokenizer | {"decoder": None}))


def broken_template(folder: Path) -> None:
    (folder / "chat_template.jinja").write_text("{% for message in %}")


def unreadable_config(folder: Path) -> None:
    (folder / "tokenizer_config.json").write_text("{")


SPOILT: list[tuple[Callable[[Path], None], str]] = [
    (without, r"tokenizer\.json is missing"),
    (cut_short, r"tokenizer\.json cannot be read"),
    (empty, r"tokenizer\.json cannot be read"),
    (other_decoder, r"its decoder \(WordPiece\) is neither"),
    (no_decoder, r"its decoder \(none\) is neither"),
    (broken_template, "chat template"),
    (unreadable_config, r"tokenizer_config\.json cannot be read"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A copy of a tiny folder, to be spoilt."""
    target = tmp_path / "source"
    shutil.copytree(model_folder("llama-int4"), target)
    for path in (target, *target.iterdir()):
        path.chmod(0o755)
    return target


@pytest.mark.parametrize(("spoil", "says"), SPOILT, ids=[spoil.__name__ for spoil, _ in SPOILT])
def test_it_is_told_what_cannot_be_used(spoil: Callable[[Path], None], says: str, folder: Path) -> None:
    check_text(folder)
    spoil(folder)
    with pytest.raises(ModelFolderError, match=says):
        check_text(folder)


@pytest.mark.parametrize("choice", ["auto", "keep"])
@pytest.mark.parametrize("command", ["serve", "import"])
def test_no_command_begins_to_import_it(command: str, choice: str, folder: Path, tmp_path: Path) -> None:
    other_decoder(folder)
    made = tmp_path / "made"
    where = ["--cache-dir", str(made), "--port", "0"] if command == "serve" else [str(made)]
    done = subprocess.run(
        [COMMAND, command, str(folder), *where, "--weights", choice], capture_output=True, text=True, check=False
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert line.startswith("paceline: ")
    assert "WordPiece" in line
    assert {path.name for path in tmp_path.iterdir()} == {"source"}  # neither a target nor its lock
