import os
import shutil
import signal
import stat
import subprocess
from pathlib import Path

import pytest

from server.config import Options
from server.storage import cache_folder, user_cache
from tests.conftest import model_folder
from tests.server.live import Live

STRANGER = ("unshare", "--user", "--map-user=54321", "--")
"""Runs a program under an id that has no account."""


@pytest.fixture
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of temporary ones."""
    folder = tmp_path / "tmp"
    folder.mkdir()
    monkeypatch.setattr("tempfile.tempdir", str(folder))
    return folder


def test_the_usual_folders() -> None:
    assert user_cache({"HOME": "/tmp", "XDG_CACHE_HOME": ""}) == (Path("/tmp/.cache/paceline"), None)
    assert user_cache({"HOME": "/tmp", "XDG_CACHE_HOME": "relative"}) == (Path("/tmp/.cache/paceline"), None)
    assert user_cache({"HOME": "/h", "XDG_CACHE_HOME": "/tmp/c"}) == (Path("/tmp/c/paceline"), None)
    assert cache_folder(Options(cache_dir="/anywhere")) == Path("/anywhere")


def test_a_home_that_cannot_hold_a_cache_gives_way_to_a_folder_of_the_user_s_alone(
    tmp_path: Path, temporary: Path
) -> None:
    (tmp_path / "file").touch()
    folder, word = user_cache({"HOME": str(tmp_path / "file")})
    assert folder == temporary / f"paceline-{os.getuid()}"
    assert stat.S_IMODE(folder.stat().st_mode) == 0o700
    assert word is not None
    assert "--cache-dir" in word
    assert str(folder) in word
    assert user_cache({"HOME": str(tmp_path / "file")})[0] == folder  # the next start finds the model


@pytest.mark.parametrize("trap", ["a link elsewhere", "a folder that all may write", "a file"])
def test_a_temporary_folder_that_somebody_else_prepared_is_not_used(trap: str, tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "file").touch()
    prepared = temporary / f"paceline-{os.getuid()}"
    if trap == "a link elsewhere":
        prepared.symlink_to(tmp_path)
    elif trap == "a file":
        prepared.touch()
    else:
        prepared.mkdir()
        prepared.chmod(0o777)
    folder, _ = user_cache({"HOME": str(tmp_path / "file")})
    assert folder != prepared
    assert list(folder.iterdir()) == []


def test_a_server_starts_without_home_under_an_id_without_an_account(tmp_path: Path) -> None:
    if shutil.which("unshare") is None or subprocess.run([*STRANGER, "true"], check=False).returncode:
        pytest.skip("there is no unshare, or it may not make user namespaces")
    kept = {name: value for name, value in os.environ.items() if name != "HOME" and not name.startswith("XDG_")}
    environ = {**kept, "TMPDIR": str(tmp_path), "PACELINE_PORT": "tcp://10.96.0.7:8000", "PACELINE_LOG_LEVEL": ""}
    live = Live(str(model_folder("llama-int4")), environ=environ, folder=tmp_path, before=STRANGER)
    try:
        assert live.get("/health").status_code == 200
    finally:
        _, log = live.end(signal.SIGTERM)
    assert "there is no home folder" in log
    assert "Kubernetes" in log
    assert [path.name for path in tmp_path.iterdir()] == ["paceline-54321"]
