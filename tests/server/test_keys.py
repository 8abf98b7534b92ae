from pathlib import Path

import pytest
from click.testing import CliRunner
from hypothesis import given
from hypothesis import strategies as st

from server.cli import main
from server.config import ConfigError
from server.keys import Keys, add_key, key_line, new_key


def test_a_key_of_a_file_has_its_name_and_one_in_the_clear_a_number(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    file.write_text(f"# ours\n\n{key_line('anna', 'a')}\n{key_line('bob', 'b')}\n")
    keys = Keys.load(["c"], str(file))
    assert [keys.name_of(key) for key in "abcd"] == ["anna", "bob", "key-1", None]
    assert len(keys) == 3


@given(st.text(max_size=40))
def test_no_other_text_is_a_key(text: str) -> None:
    keys = Keys.load([key := new_key()], "")
    assert keys.name_of(text) is None
    assert keys.name_of(key) == "key-1"


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("anna secret\n", "line 1"),
        (f"{key_line('anna', 'a')}\n{key_line('anna', 'b')}\n", "line 2.*taken"),
        ("# nobody yet\n", "holds no key"),
    ],
)
def test_a_key_file_that_would_let_in_nobody_or_the_wrong_ones_is_refused(
    tmp_path: Path, content: str, says: str
) -> None:
    file = tmp_path / "keys"
    file.write_text(content)
    with pytest.raises(ConfigError, match=says):
        Keys.load([], str(file))
    with pytest.raises(ConfigError, match="cannot be read"):
        Keys.load([], str(tmp_path / "none"))


def test_the_command_shows_a_key_once_and_keeps_its_hash_for_its_owner_alone(tmp_path: Path) -> None:
    file = tmp_path / "keys"
    shown = CliRunner().invoke(main, ["key", "anna", "--file", str(file)]).stdout.strip()
    assert Keys.load([], str(file)).name_of(shown) == "anna"
    assert shown not in file.read_text()
    assert file.stat().st_mode & 0o077 == 0
    again = CliRunner().invoke(main, ["key", "anna", "--file", str(file)])
    assert again.exit_code == 1
    with pytest.raises(ConfigError, match="anna"):
        add_key(file, "anna", "x")


def test_the_command_without_a_file_prints_the_line_to_add() -> None:
    key, line = CliRunner().invoke(main, ["key", "bob"]).stdout.splitlines()
    assert line == key_line("bob", key)
