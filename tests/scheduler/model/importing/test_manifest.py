from pathlib import Path

import msgspec
import pytest

from scheduler.model.importing import BrokenSource, ImportFailed, ImportOptions, Manifest, read_manifest
from scheduler.model.importing.logical import RopeSwitch
from scheduler.model.importing.manifest import FILE, SourceRecord, now, versions, write_manifest

MANIFEST = Manifest(
    name="tiny",
    source=SourceRecord(path="tiny.gguf", kind="gguf", sha256="0" * 64),
    options=ImportOptions(context=100),
    max_context=128,
    vocab_size=640,
    done=["Packed."],
    rope_switch=RopeSwitch(original=64, chosen="long"),
    weights="int8",
    kv_cache="float32",
    created=now(),
    versions=versions(),
)


def test_a_manifest_is_read_as_it_was_written(tmp_path: Path) -> None:
    write_manifest(tmp_path, MANIFEST)
    assert read_manifest(tmp_path) == MANIFEST


def test_a_folder_without_a_manifest_is_not_packed(tmp_path: Path) -> None:
    assert read_manifest(tmp_path) is None
    assert read_manifest(tmp_path / "nowhere") is None


def test_a_spoiled_manifest_is_called_broken(tmp_path: Path) -> None:
    (tmp_path / FILE).write_text("{}")
    with pytest.raises(BrokenSource, match="import the model anew"):
        read_manifest(tmp_path)


def test_another_form_asks_for_a_new_import() -> None:
    with pytest.raises(ImportFailed, match=r"form 99.*tiny\.gguf"):
        msgspec.structs.replace(MANIFEST, format=99).check(ImportOptions())


@pytest.mark.parametrize(("context", "fits"), [(None, True), (64, False), (65, True), (128, True), (129, False)])
def test_a_context_fits_the_tables_or_is_refused(context: int | None, fits: bool) -> None:
    if fits:
        MANIFEST.check(ImportOptions(context=context))
    else:
        with pytest.raises(ImportFailed, match="context"):
            MANIFEST.check(ImportOptions(context=context))


@pytest.mark.parametrize(
    ("options", "fits"),
    [
        (ImportOptions(), True),
        (ImportOptions(weights="int8", kv_cache="float32"), True),
        (ImportOptions(weights="keep"), False),
        (ImportOptions(kv_cache="int8"), False),
    ],
)
def test_a_folder_made_for_another_precision_is_refused(options: ImportOptions, fits: bool) -> None:
    if fits:
        MANIFEST.check(options)
    else:
        with pytest.raises(ImportFailed, match="import it anew"):
            MANIFEST.check(options)
