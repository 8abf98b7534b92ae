"""What can be said of the files without their programs, or with the ones that only check."""

import sys
import tomllib
from pathlib import Path
from subprocess import run

import pytest

from server.config import load
from tests.configs.programs import CONFIGS, copy, program


@pytest.mark.parametrize("file", sorted(CONFIGS.glob("*.toml")), ids=lambda file: file.name)
def test_a_configuration_for_a_place_sets_nothing_that_is_the_default(file: Path) -> None:
    options, default = load({}, {}, file).options, load({}, {}, None).options
    named = set(tomllib.loads(file.read_text()))
    same = {name for name in named if getattr(options, name) == getattr(default, name)}
    assert same == (named if file.name == "default.toml" else set())


def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    analyze = program("systemd-analyze", "systemd")
    paceline = str(Path(sys.executable).with_name("paceline"))
    unit = copy("paceline.service", tmp_path, {"ExecStart=/opt/paceline/bin/paceline": f"ExecStart={paceline}"})
    done = run([analyze, "verify", "--man=no", str(unit)], capture_output=True, text=True, check=False)
    assert "paceline.service" not in done.stderr, done.stderr
