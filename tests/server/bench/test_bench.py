"""`paceline bench` from end to end, on tiny models."""

import contextlib
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from server.bench.child import Ready, Setup
from server.bench.options import BenchError
from server.bench.process import Process
from server.bench.report import read_json
from tests.conftest import Packed, model_folder

COMMAND = str(Path(sys.executable).with_name("paceline"))


def bench(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([COMMAND, "bench", *arguments], capture_output=True, text=True, check=False, timeout=120)


def test_a_model_is_measured_beside_its_peers(tmp_path: Path) -> None:
    work = ["--concurrency", "1,2", "--prompt-tokens", "8", "--new-tokens", "6", "--repeats", "1"]
    folder, cache = str(model_folder("llama-int4")), str(tmp_path / "cache")
    done = bench(folder, *work, "--peers", "auto", "--cache-dir", cache, "--output", str(tmp_path))
    assert done.returncode == 0, done.stderr
    report = read_json(tmp_path / "bench.json")
    measured = [(cell.contender, cell.concurrency) for cell in report.cells]
    contenders = ["paceline", "engine", "og-threads", "og-batch"]
    assert measured == [(name, count) for count in (1, 2) for name in contenders]
    for cell in report.cells:
        assert cell.median.rate > 0
        assert cell.median.rss > cell.median.anonymous > 0
        assert (cell.median.step is None) == (cell.contender in ("paceline", "og-threads"))
        assert (cell.median.python is not None) == (cell.contender == "engine")
    assert {"openvino", "llama-server", "vllm"} <= set(report.left_out)  # they read other files
    assert [target.what.split(" at ")[1][:1] for target in report.targets] == ["1", "2"]
    assert (tmp_path / "bench.svg").read_text().startswith("<svg")


def test_a_shape_answers_what_sharing_a_step_costs(tmp_path: Path) -> None:
    work = ["--rows", "1,6", "--prompt-tokens", "8", "--new-tokens", "6", "--repeats", "2"]
    json = tmp_path / "bench.json"
    done = bench("--shape", "tiny", *work, "--cache-dir", str(tmp_path / "cache"), "--json", str(json))
    assert done.returncode == 0, done.stderr
    report = read_json(json)
    assert [cell.concurrency for cell in report.cells] == [1, 2, 3, 4, 6]
    assert {len(cell.repeats) for cell in report.cells} == {2}
    assert report.growth is not None
    assert report.growth.tokens > 2 * 256
    assert any("4 equal requests" in target.what for target in report.targets)


def test_a_peer_that_was_asked_for_and_cannot_run_is_told(packed: Packed, tmp_path: Path) -> None:
    done = bench(str(packed("llama-int4")), "--peers", "og-batch", "--cache-dir", str(tmp_path))
    assert done.returncode == 1
    assert "packed for paceline alone" in " ".join(done.stderr.split())


def test_ctrl_c_ends_the_benchmark_and_every_process_it_started(tmp_path: Path) -> None:
    cache = str(tmp_path / "cache")
    arguments = [COMMAND, "bench", str(model_folder("llama-int4")), "--repeats", "1000", "--cache-dir", cache]
    with subprocess.Popen(arguments, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
        assert process.stderr is not None
        next(line for line in process.stderr if "paceline: 2 at once" in line)
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
    assert not [line for line in _command_lines() if cache in line]


def _command_lines() -> list[str]:
    """Every process's command line; those that end meanwhile are not there."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            lines.append(path.read_text())
    return lines


def test_a_process_that_cannot_load_its_model_says_why(tmp_path: Path) -> None:
    room = {"threads": 1, "concurrency": 1, "context": 16, "step_rows": 16}
    setup = Setup("og-batch", str(tmp_path / "nothing"), instruction_set="portable", **room)
    with Process(setup) as process, pytest.raises(BenchError, match="nothing"):
        process.ask(setup, Ready)
