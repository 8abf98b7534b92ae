"""What a start leaves behind outside its own cache folder: nothing."""

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from tests.conftest import model_folder
from tests.server.live import Live

LOADERS = ["scheduler.model.session", "scheduler.model.kernels.library", "server.main", "server.bench.contenders.genai"]
"""The rooms through which onnxruntime and onnxruntime-genai come into a process."""


@pytest.fixture
def home(tmp_path: Path) -> Path:
    """An empty home folder."""
    folder = tmp_path / "home"
    folder.mkdir()
    return folder


def environment(home: Path) -> dict[str, str]:
    """As a user has it who never heard of the switch, or was told to turn it the wrong way."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("ORT_", "CI", "XDG_", "GITHUB"))}
    return {**kept, "HOME": str(home), "ORT_DISABLE_TELEMETRY": "0"}


@pytest.mark.parametrize("room", LOADERS)
def test_loading_onnxruntime_writes_nothing_to_home_or_the_working_folder(room: str, home: Path) -> None:
    program = f"import sys, {room}; assert any(name.startswith('onnxruntime') for name in sys.modules)"
    subprocess.run([sys.executable, "-c", program], cwd=home, env=environment(home), check=True)
    assert list(home.rglob("*")) == []


def test_a_server_that_imported_a_model_and_answered_leaves_its_own_cache_alone(home: Path) -> None:
    live = Live(str(model_folder("llama-int4")), environ=environment(home), folder=home)
    try:
        assert live.post("/v1/completions", {"prompt": "a", "max_tokens": 2}).status_code == 200
    finally:
        live.end(signal.SIGTERM)
    assert [path.relative_to(home) for path in home.glob("*")] == [Path(".cache")]
    assert [path.name for path in (home / ".cache").iterdir()] == ["paceline"]
