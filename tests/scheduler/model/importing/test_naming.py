import shutil
from pathlib import Path

import pytest

from scheduler.model.importing import BrokenSource, ImportOptions, Silent, cached_import
from scheduler.model.importing.manifest import read_manifest
from scheduler.model.importing.naming import cache_name, folder_name
from tests.conftest import model_folder
from tests.scheduler.model.importing.tiny_gguf import TinyLlama

HASH = "0123456789abcdef0123456789abcdef01234567"


@pytest.mark.parametrize(
    ("path", "name"),
    [
        (f"models--org--name/snapshots/{HASH}", "org/name"),
        (f"models--org--a-b.c_d/snapshots/{HASH}", "org/a-b.c_d"),
        (f"models--gpt2/snapshots/{HASH}", "gpt2"),
        (f"models--org--name/snapshots/{HASH}/cpu_and_mobile/cpu-int4", "org/name"),
        ("models--org--name/elsewhere", "elsewhere"),
        ("models--org--name", "models--org--name"),
        ("models--org--name/snapshots", "snapshots"),
        (f"snapshots/{HASH}", HASH),
    ],
)
def test_a_folder_in_a_hub_s_cache_has_the_hub_s_name(path: str, name: str, tmp_path: Path) -> None:
    folder = tmp_path / path
    folder.mkdir(parents=True)
    assert folder_name(folder) == name
    (tmp_path / "link").symlink_to(folder)
    assert folder_name(tmp_path / "link") == name
    assert cache_name(folder) == name.replace("/", "--")


def test_the_working_folder_has_its_own_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert folder_name(Path()) == tmp_path.name


def snapshot(cache: Path, files: list[Path]) -> Path:
    """Files as a hub's cache holds them: blobs, and a snapshot of links to them."""
    blobs, folder = cache / "models--org--name" / "blobs", cache / "models--org--name" / "snapshots" / HASH
    blobs.mkdir(parents=True)
    folder.mkdir(parents=True)
    for number, file in enumerate(files):
        shutil.copyfile(file, blobs / f"{number:064x}")
        (folder / file.name).symlink_to(Path("..") / ".." / "blobs" / f"{number:064x}")
    return folder


@pytest.mark.parametrize("weights", ["keep", "int8"])
def test_a_snapshot_of_links_is_imported_under_the_hub_s_name(weights: str, tmp_path: Path) -> None:
    source = snapshot(tmp_path / "hub", [path for path in model_folder("llama-int4").iterdir() if path.is_file()])
    options = ImportOptions(context=256, weights="keep" if weights == "keep" else "int8", kv_cache="float32")
    packed = cached_import(source, tmp_path / "cache", options, Silent())
    manifest = read_manifest(packed)
    assert manifest is not None
    assert manifest.name == "org/name"
    assert packed.parent == tmp_path / "cache"
    assert packed.name.startswith("org--name-")
    assert not [path for path in packed.iterdir() if path.is_symlink()]


@pytest.mark.parametrize("above", ["models--org--name", "models--org--name/snapshots"])
def test_a_folder_above_the_snapshot_is_refused_with_the_snapshot_s_path(above: str, tmp_path: Path) -> None:
    source = snapshot(tmp_path, [path for path in model_folder("llama-int4").iterdir() if path.is_file()])
    with pytest.raises(BrokenSource, match=f"as {source} is$"):
        cached_import(tmp_path / above, tmp_path / "cache", ImportOptions(), Silent())


def test_a_folder_without_any_model_is_refused_as_such(tmp_path: Path) -> None:
    with pytest.raises(BrokenSource, match=r"give the path of a model$"):
        cached_import(tmp_path, tmp_path / "cache", ImportOptions(), Silent())


def test_a_gguf_file_behind_a_link_keeps_the_link_s_name(tmp_path: Path) -> None:
    file = tmp_path / "tiny.Q8.gguf"
    TinyLlama().write(file)
    source = snapshot(tmp_path / "hub", [file]) / file.name
    packed = cached_import(source, tmp_path / "cache", ImportOptions(), Silent())
    manifest = read_manifest(packed)
    assert manifest is not None
    assert manifest.name == "tiny.Q8"
    assert packed.name.startswith("tiny.Q8.gguf-")
