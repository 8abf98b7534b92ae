"""An import onto file systems that lack something: the kernel's answers are those of such a file system, by strace."""

import shutil
import subprocess
from pathlib import Path

import pytest

from scheduler.model.importing.manifest import read_manifest
from tests.conftest import model_folder
from tests.server.live import COMMAND


def imported(target: Path, *injected: str) -> subprocess.CompletedProcess[str]:
    """Import a tiny model where some system calls fail; the test skips aloud where strace cannot have them fail."""
    strace = shutil.which("strace")
    if strace is None or subprocess.run([strace, "-o", "/dev/null", "true"], check=False).returncode:
        pytest.skip("there is no strace, or it may not trace")
    calls = [word for call in injected for word in ("-e", f"inject={call}")]
    watched = f"trace={','.join(call.split(':')[0] for call in injected)}"
    command = [COMMAND, "import", str(model_folder("llama-int4")), str(target), "--weights", "keep"]
    return subprocess.run(
        [strace, "-f", "-qq", "-o", "/dev/null", "-e", watched, *calls, *command],
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.mark.parametrize("error", ["ENOSYS", "EOPNOTSUPP", "ENOLCK", "EINVAL"])
def test_without_locks_it_goes_on_and_leaves_what_others_may_be_making(error: str, tmp_path: Path) -> None:
    other = tmp_path / ".packed.import-other"
    other.mkdir()
    done = imported(tmp_path / "packed", f"flock:error={error}")
    assert done.returncode == 0, done.stderr
    assert read_manifest(tmp_path / "packed") is not None
    assert other.exists()
    assert "has no locks" in " ".join(done.stderr.split())


def test_without_flushing_and_modes_it_goes_on(tmp_path: Path) -> None:
    done = imported(tmp_path / "packed", "fsync:error=EINVAL", "chmod:error=EPERM")
    assert done.returncode == 0, done.stderr
    assert read_manifest(tmp_path / "packed") is not None


@pytest.mark.parametrize("call", ["flock:error=EIO", "fsync:error=EIO"])
def test_a_disk_that_fails_is_told_in_one_sentence(call: str, tmp_path: Path) -> None:
    done = imported(tmp_path / "packed", call)
    assert done.returncode == 1
    assert "paceline: " in done.stderr.splitlines()[-1]
    assert "Input/output error" in done.stderr.splitlines()[-1]
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "packed").exists()
