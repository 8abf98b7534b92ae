import os
import subprocess
import sys
from pathlib import Path

import pytest

from scheduler.model.importing import ImportOptions, Silent, cached_import, import_model, read_manifest
from scheduler.model.importing.made import check_replaceable
from scheduler.model.importing.target import link_or_copy, locked, write_folder
from tests.scheduler.model.importing.tiny_gguf import TinyLlama

KILLED = """
import os, sys
from pathlib import Path
from scheduler.model.importing import ImportOptions, import_model

class Fatal:
    calls = 0
    def start(self, label, total):
        self.count()
        if label == sys.argv[3]:
            os._exit(9)
    def advance(self, amount): self.count()
    def done(self): self.count()
    def count(self):
        self.calls += 1
        if str(self.calls) == sys.argv[3]:
            os._exit(9)

import_model(Path(sys.argv[1]), Path(sys.argv[2]), ImportOptions(), Fatal())
"""


@pytest.mark.parametrize("moment", ["write weights", "12", "hash the source"])
def test_a_killed_import_leaves_nothing_that_looks_finished(moment: str, tmp_path: Path) -> None:
    source, target = TinyLlama().write(tmp_path / "tiny.gguf"), tmp_path / "out" / "packed"
    command = [sys.executable, "-c", KILLED, str(source), str(target), moment]
    assert subprocess.run(command, check=False).returncode == 9
    assert not target.exists()
    assert len(list(target.parent.iterdir())) == 2  # the lock, and what it was writing
    assert not list(target.parent.rglob("paceline.json"))
    import_model(source, target, ImportOptions(), Silent())
    assert read_manifest(target) is not None
    assert sorted(path.name for path in target.parent.iterdir()) == [".packed.lock", "packed"]


def test_imports_of_one_target_at_once_end_in_one_whole_folder(tmp_path: Path) -> None:
    source, target = TinyLlama().write(tmp_path / "tiny.gguf"), tmp_path / "packed"
    command = [sys.executable, "-c", KILLED, str(source), str(target), "never"]
    running = [subprocess.Popen(command) for _ in range(3)]
    assert [process.wait() for process in running] == [0, 0, 0]
    assert read_manifest(target) is not None
    assert sorted(path.name for path in tmp_path.iterdir()) == [".packed.lock", "packed", "tiny.gguf"]


def test_a_failure_keeps_the_folder_that_was_there(tmp_path: Path) -> None:
    target = tmp_path / "packed"
    with locked(target, Silent()):
        write_folder(target, lambda folder: (folder / "model.onnx").touch(), check_replaceable)
        with pytest.raises(ZeroDivisionError):
            write_folder(target, lambda folder: (folder / "new").write_text(str(1 // 0)), check_replaceable)
        assert [path.name for path in target.iterdir()] == ["model.onnx"]
        write_folder(target, lambda folder: (folder / "new").touch(), check_replaceable)
    assert [path.name for path in target.iterdir()] == ["new"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".packed.lock", "packed"]


def test_data_is_copied_where_it_cannot_be_linked(tmp_path: Path) -> None:
    source, other = tmp_path / "data", Path("/dev/shm")
    if not other.is_dir() or other.stat().st_dev == tmp_path.stat().st_dev:
        pytest.skip("there is no second file system at hand")
    source.write_bytes(b"weights" * 1000)
    copy = other / f"paceline-test-{os.getpid()}"
    copy.mkdir()
    try:
        assert not link_or_copy(source, copy, Silent())
        assert (copy / "data").read_bytes() == source.read_bytes()
    finally:
        (copy / "data").unlink()
        copy.rmdir()


def test_a_source_is_imported_once_and_again_when_it_changes(tmp_path: Path) -> None:
    source, cache = TinyLlama().write(tmp_path / "tiny.gguf"), tmp_path / "cache"
    first = cached_import(source, cache, ImportOptions(), Silent())
    made = (first / "paceline.json").stat().st_mtime_ns
    assert cached_import(source, cache, ImportOptions(context=64), Silent()) == first
    assert (first / "paceline.json").stat().st_mtime_ns == made
    settings = source.with_name("generation_config.json")
    settings.write_text('{"temperature": 0.5}')
    published = cached_import(source, cache, ImportOptions(), Silent())
    assert (published / settings.name).read_text() == settings.read_text()
    assert published != first
    settings.unlink()
    TinyLlama(seed=1).write(source)
    assert cached_import(source, cache, ImportOptions(), Silent()) != first


def test_a_packed_folder_is_taken_as_it_is(tmp_path: Path) -> None:
    source, packed = TinyLlama().write(tmp_path / "tiny.gguf"), tmp_path / "packed"
    import_model(source, packed, ImportOptions(), Silent())
    assert cached_import(packed, tmp_path / "cache", ImportOptions(), Silent()) == packed
    assert not (tmp_path / "cache").exists()
