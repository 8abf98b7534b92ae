"""What an import may replace, and what it leaves alone."""

import logging
import os
import shutil
import stat
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from scheduler.model.importing import (
    BrokenSource,
    ImportFailed,
    ImportOptions,
    Silent,
    cached_import,
    import_model,
    read_manifest,
)
from scheduler.model.importing.file_system import exchange
from scheduler.model.importing.made import damage
from scheduler.model.importing.manifest import FILE, write_manifest
from scheduler.model.importing.target import locked, write_folder
from scheduler.model.importing.weight_file import NAME as WEIGHTS
from tests.conftest import AS_IT_IS, model_folder
from tests.scheduler.model.importing.tiny_gguf import TinyLlama

Tree = dict[str, tuple[int, int, bytes | None]]


def tree(folder: Path) -> Tree:
    """All that is in a folder: kind and mode, time of change, content."""
    found = {}
    for path in folder.rglob("*"):
        facts = path.lstat()
        found[str(path)] = facts.st_mode, facts.st_mtime_ns, path.read_bytes() if path.is_file() else None
    return found


@pytest.fixture
def gguf(tmp_path: Path) -> Path:
    return TinyLlama().write(tmp_path / "source.gguf")


@pytest.fixture
def genai(tmp_path: Path) -> Path:
    return Path(shutil.copytree(model_folder("llama-int4"), tmp_path / "source"))


def refused(source: Path, target: Path, around: Path) -> str:
    """Why the import is refused; nothing around it has changed."""
    before = tree(around)
    with pytest.raises(ImportFailed) as caught:
        import_model(source, target, ImportOptions(), Silent())
    assert tree(around) == before
    assert str(target.resolve()) in str(caught.value)
    return str(caught.value)


def test_a_source_is_no_target(gguf: Path, genai: Path, tmp_path: Path) -> None:
    link = tmp_path / "link"
    link.symlink_to(genai)
    for source, target in (
        (gguf, gguf),
        (genai, genai),
        (link, genai),
        (genai, link),
        (genai, genai / "x" / ".."),
    ):
        assert "is the source itself" in refused(source, target, tmp_path)


def test_a_target_inside_the_source_would_write_there(genai: Path, tmp_path: Path) -> None:
    assert "lies in the source" in refused(genai, genai / "packed", tmp_path)
    assert "lies in the source" in refused(genai, genai / "deeper" / "packed", tmp_path)


def test_a_folder_around_the_source_is_no_target(gguf: Path, genai: Path, tmp_path: Path) -> None:
    for source in (gguf, genai):
        assert "holds the source" in refused(source, tmp_path, tmp_path)
        assert "holds the source" in refused(source, tmp_path.parent, tmp_path)


@pytest.mark.parametrize("made", ["a file", "an empty folder", "a folder with a file", "a broken manifest"])
def test_what_no_import_made_is_no_target(made: str, gguf: Path, genai: Path, tmp_path: Path) -> None:
    target = tmp_path / "target"
    if made == "a file":
        target.write_text("mine")
    else:
        target.mkdir()
    if made == "a folder with a file":
        (target / "notes").write_text("mine")
    if made == "a broken manifest":
        (target / FILE).write_text("{}")
    for source in (gguf, genai):
        assert "is there already" in refused(source, target, tmp_path)


def test_the_folder_one_is_in_is_refused_in_words(gguf: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    for target in (".", "", "..", "/", "../here"):
        refused(gguf, Path(target), tmp_path)


def test_links_that_lead_nowhere_are_refused_in_words(gguf: Path, tmp_path: Path) -> None:
    loop = tmp_path / "loop"
    loop.symlink_to(loop)
    with pytest.raises(ImportFailed, match="leads nowhere"):
        import_model(gguf, loop, ImportOptions(), Silent())


def test_a_link_to_an_older_folder_stays_and_leads_to_the_newer(gguf: Path, tmp_path: Path) -> None:
    link, packed = tmp_path / "link", tmp_path / "packed"
    link.symlink_to(packed)
    for name in ("older", "newer"):
        import_model(gguf, link, ImportOptions(name=name), Silent())
        assert link.is_symlink()
        manifest = read_manifest(packed)
        assert manifest is not None
        assert manifest.name == name


@pytest.mark.parametrize("listed", [True, False], ids=["listed", "before manifests listed files"])
def test_an_older_folder_is_replaced_unless_it_holds_more(listed: bool, gguf: Path, tmp_path: Path) -> None:
    target = tmp_path / "packed"
    manifest = import_model(gguf, target, ImportOptions(), Silent())
    if not listed:
        write_manifest(target, msgspec.structs.replace(manifest, files={}))
    (target / "quality.json").write_text("{}")  # of --report
    (target / "notes").write_text("mine")
    assert "(notes)" in refused(gguf, target, tmp_path)
    (target / "notes").unlink()
    (target / "model.onnx.backup").mkdir()
    assert "(model.onnx.backup)" in refused(gguf, target, tmp_path)
    (target / "model.onnx.backup").rmdir()
    import_model(gguf, target, ImportOptions(name="newer"), Silent())
    assert not (target / "quality.json").exists()
    assert sorted(path.name for path in tmp_path.iterdir()) == [".packed.lock", "packed", "source.gguf"]


def test_kept_weights_count_as_an_import_s_and_the_source_s_stay(genai: Path, tmp_path: Path) -> None:
    before, target = tree(genai), tmp_path / "packed"
    for _ in range(2):
        import_model(genai, target, AS_IT_IS, Silent())
        assert tree(genai) == before


def test_a_packed_folder_is_no_source(gguf: Path, tmp_path: Path) -> None:
    import_model(gguf, tmp_path / "packed", ImportOptions(), Silent())
    with pytest.raises(ImportFailed, match="a packed folder already"):
        import_model(tmp_path / "packed", tmp_path / "again", ImportOptions(), Silent())


def test_a_folder_of_the_cache_is_no_target(gguf: Path, tmp_path: Path) -> None:
    cached = cached_import(gguf, tmp_path / "cache", ImportOptions(), Silent())
    assert "for its cache" in refused(gguf, cached, tmp_path)


class Watch(Silent):
    """Sees at every step of an import that the older folder is there and whole."""

    def __init__(self, target: Path, name: str) -> None:
        self._target, self._name = target, name
        self.stages: list[str] = []

    def start(self, label: str, total: int | None) -> None:
        """Look."""
        del total
        self.stages.append(label)
        self.advance(0)

    def advance(self, amount: int) -> None:
        """Look."""
        del amount
        manifest = read_manifest(self._target)
        assert manifest is not None
        assert (manifest.name, damage(self._target)) == (self._name, None)


def test_the_older_folder_is_there_until_the_newer_is_complete(gguf: Path, tmp_path: Path) -> None:
    target = tmp_path / "packed"
    import_model(gguf, target, ImportOptions(name="older"), Silent())
    watch = Watch(target, "older")
    import_model(gguf, target, ImportOptions(name="newer"), watch)
    assert "hash the source" in watch.stages
    Watch(target, "newer").advance(0)


def test_files_that_come_while_it_is_replaced_are_not_lost(gguf: Path, tmp_path: Path) -> None:
    target = tmp_path / "packed"
    import_model(gguf, target, ImportOptions(name="older"), Silent())

    class Late(Silent):
        def start(self, label: str, total: int | None) -> None:
            del label, total
            (target / "notes").write_text("mine")

    with pytest.raises(ImportFailed, match="notes"):
        import_model(gguf, target, ImportOptions(name="newer"), Late())
    assert (target / "notes").read_text() == "mine"
    Watch(target, "older").advance(0)
    assert sorted(path.name for path in tmp_path.iterdir()) == [".packed.lock", "packed", "source.gguf"]


def test_two_names_are_exchanged_in_one_move(tmp_path: Path) -> None:
    one, other = tmp_path / "one", tmp_path / "other"
    for path in (one, other):
        path.mkdir()
        (path / f"was {path.name}").touch()
    if not exchange(one, other):
        pytest.skip("this file system exchanges no names")
    assert [path.name for path in one.iterdir()] == ["was other"]
    assert [path.name for path in other.iterdir()] == ["was one"]
    with pytest.raises(FileNotFoundError):
        exchange(one, tmp_path / "none")


def test_an_older_folder_that_a_dead_import_put_aside_comes_back(tmp_path: Path) -> None:
    target = tmp_path / "packed"
    aside = tmp_path / ".packed.import-abcd_123"
    (aside / "packed").mkdir(parents=True)
    (aside / "packed" / "old").touch()
    (tmp_path / ".packed.import-of my own").mkdir()  # nobody's but the user's
    with locked(target, Silent()):
        assert [path.name for path in target.iterdir()] == ["old"]
    assert sorted(path.name for path in tmp_path.iterdir()) == [".packed.import-of my own", ".packed.lock", "packed"]


def test_an_older_folder_that_may_not_be_replaced_stays(tmp_path: Path) -> None:
    target = tmp_path / "packed"
    target.mkdir()

    def no(folder: Path) -> None:
        raise ImportFailed(f"not {folder.name}")

    with locked(target, Silent()), pytest.raises(ImportFailed, match="not packed"):
        write_folder(target, lambda folder: (folder / "new").touch(), no)
    assert list(target.iterdir()) == []


Spoil = Callable[[Path], object]
SPOILT: dict[str, Spoil] = {
    "weights gone": lambda folder: (folder / WEIGHTS).unlink(),
    "weights cut short": lambda folder: os.truncate(folder / WEIGHTS, 100),
    "graph gone": lambda folder: (folder / "model.onnx").unlink(),
    "graph empty": lambda folder: os.truncate(folder / "model.onnx", 0),
    "tokenizer gone": lambda folder: (folder / "tokenizer.json").unlink(),
    "manifest gone": lambda folder: (folder / FILE).unlink(),
    "manifest cut short": lambda folder: os.truncate(folder / FILE, 100),
    "all gone": lambda folder: (shutil.rmtree(folder), folder.mkdir()),  # type: ignore[func-returns-value]
}


@pytest.mark.parametrize("spoilt", SPOILT)
def test_a_damaged_folder_of_the_cache_is_told_and_made_anew(
    spoilt: str, gguf: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = cached_import(gguf, tmp_path / "cache", ImportOptions(), Silent())
    SPOILT[spoilt](folder)
    with caplog.at_level(logging.WARNING):
        assert cached_import(gguf, tmp_path / "cache", ImportOptions(), Silent()) == folder
    (record,) = caplog.records
    assert f"{folder} is damaged" in record.getMessage()
    assert damage(folder) is None
    assert stat.S_IMODE(folder.stat().st_mode) == 0o755


@pytest.mark.parametrize("spoilt", ["graph gone", "graph empty"])
def test_a_damaged_folder_of_an_older_form_of_manifest_is_made_anew(spoilt: str, gguf: Path, tmp_path: Path) -> None:
    folder = cached_import(gguf, tmp_path / "cache", ImportOptions(), Silent())
    manifest = read_manifest(folder)
    assert manifest is not None
    write_manifest(folder, msgspec.structs.replace(manifest, files={}))
    assert damage(folder) is None
    SPOILT[spoilt](folder)
    cached_import(gguf, tmp_path / "cache", ImportOptions(), Silent())
    assert damage(folder) is None


def test_a_damaged_folder_of_the_cache_with_somebody_s_file_is_left(gguf: Path, tmp_path: Path) -> None:
    folder = cached_import(gguf, tmp_path / "cache", ImportOptions(), Silent())
    (folder / WEIGHTS).unlink()
    (folder / "notes").write_text("mine")
    with pytest.raises(ImportFailed, match="notes"):
        cached_import(gguf, tmp_path / "cache", ImportOptions(), Silent())
    assert (folder / "notes").read_text() == "mine"


def test_a_damaged_folder_whose_source_is_gone_says_so(gguf: Path, tmp_path: Path) -> None:
    cached_import(gguf, tmp_path / "cache", ImportOptions(), Silent())
    gguf.unlink()
    with pytest.raises(BrokenSource, match="give the path"):
        cached_import(gguf, tmp_path / "cache", ImportOptions(), Silent())
