import os
import pwd
from pathlib import Path

import pytest
from click.testing import CliRunner

from server.cli import main
from server.config import PATHS, ConfigError, load
from server.paths import NoHome, expanded, home

ME = pwd.getpwuid(os.getuid())


@pytest.mark.parametrize(
    ("path", "becomes"),
    [
        ("~", "/h"),
        ("~/", "/h"),
        ("~/a/~", "/h/a/~"),
        ("a/~/b", "a/~/b"),
        ("/~", "/~"),
        ("", ""),
        (f"~{ME.pw_name}/a", f"{ME.pw_dir}/a"),
        ("~nobody-of-that-name/a", "~nobody-of-that-name/a"),
    ],
)
def test_a_tilde_is_a_home_folder_where_shells_take_it_for_one(path: str, becomes: str) -> None:
    assert expanded(path, {"HOME": "/h"}) == becomes


@pytest.mark.parametrize("environ", [{}, {"HOME": ""}, {"HOME": "relative"}])
def test_without_a_usable_home_the_account_tells_it(environ: dict[str, str]) -> None:
    assert home(environ) == ME.pw_dir


def test_every_option_that_is_a_path_is_known_as_one() -> None:
    assert {"model", "cache_dir", "uds", "api_key_file", "ssl_certfile", "ssl_keyfile"} == PATHS


@pytest.mark.parametrize("option", sorted(PATHS))
def test_a_tilde_is_replaced_from_flag_environment_and_file(option: str, tmp_path: Path) -> None:
    file = tmp_path / "a.toml"
    file.write_text(f'{option} = "~/a"\n')
    environ = {"HOME": "/h"}
    sources = [
        load({option: "~/a"}, environ, None),
        load({}, {**environ, f"PACELINE_{option.upper()}": "~/a"}, None),
        load({}, environ, file),
    ]
    assert [getattr(source.options, option) for source in sources] == ["/h/a"] * 3


def test_the_configuration_file_and_a_command_s_files_may_begin_with_a_tilde(tmp_path: Path) -> None:
    (tmp_path / "a.toml").write_text("slots = 7\n")
    home_ = {"HOME": str(tmp_path)}
    for arguments, environ in ((["--config=~/a.toml"], {}), ([], {"PACELINE_CONFIG": "~/a.toml"})):
        assert "slots = 7" in CliRunner().invoke(main, ["config", *arguments], env=home_ | environ).stdout
    assert CliRunner().invoke(main, ["key", "me", "--file=~/keys"], env=home_).exit_code == 0
    assert (tmp_path / "keys").exists()


def test_a_tilde_without_a_home_is_told_with_the_option(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(os, "getuid", lambda: 2**31 - 7)  # an account that no machine has
    with pytest.raises(NoHome, match="write it in full"):
        expanded("~/a", {})
    with pytest.raises(ConfigError, match=r"cache_dir \(environment\).*write it in full"):
        load({}, {"PACELINE_CACHE_DIR": "~/a"}, None)
