"""Tells a folder that an import made from everything else that lies on a disk: only the former is ever replaced.

An import's folder has a manifest, which names its files. A folder with one more file, somebody's notes or a source, is
not replaced. Knows names and sizes; not how folders are written.
"""

from pathlib import Path

from scheduler.model.importing.errors import BrokenSource, ImportFailed
from scheduler.model.importing.genai_source import CARRIED, CONFIG, genai_files
from scheduler.model.importing.manifest import FILE, Manifest, read_manifest

REPORT = "quality.json"
"""What `--report` adds to a folder."""

_ALWAYS = {FILE, REPORT}
_BEFORE = {CONFIG, *CARRIED}  # of folders whose manifest does not list its files yet, beside graph and data
_ELSE = "choose a folder that does not exist yet"


def check_target(source: Path, target: Path) -> None:
    """See that nothing is lost when an import of the source takes the target's place; both are resolved.

    Raises:
        ImportFailed: The target is the source, lies in it or around it, or is there already and no import's.

    """
    if target == source:
        raise ImportFailed(f"{target} is the source itself, which is never written to: {_ELSE}")
    if source in target.parents:
        raise ImportFailed(f"{target} lies in the source {source}, which is never written to: {_ELSE}, elsewhere")
    if target in source.parents:
        raise ImportFailed(f"{target} holds the source {source}, which would be lost: {_ELSE}")
    if not target.exists():
        return
    if not target.is_dir():
        raise ImportFailed(f"{target} is there already and is no folder: {_ELSE}")
    try:
        manifest = read_manifest(target)
    except BrokenSource as error:
        raise ImportFailed(f"{target} is there already, and {error.args[0]}, or {_ELSE}") from error
    if manifest is None:
        raise ImportFailed(f"{target} is there already and was not made by an import: {_ELSE}")
    if manifest.purpose != "import":
        raise ImportFailed(f"{target} was made by paceline for its {manifest.purpose}, not by an import: {_ELSE}")
    check_replaceable(target)


def check_replaceable(folder: Path) -> None:
    """See that a folder, which is there, holds nothing but what an import puts into it.

    Raises:
        ImportFailed: It holds something else, which would be lost.

    """
    if not folder.is_dir():
        raise ImportFailed(f"{folder} is no folder, and one is to be made there: move it away")
    try:
        manifest = read_manifest(folder)
    except BrokenSource:
        manifest = None
    found = sorted(path.name for path in folder.iterdir() if path.is_dir() or not _is_own(path.name, manifest))
    if found:
        named = ", ".join(found[:3]) + (" and more" if len(found) > 3 else "")
        raise ImportFailed(f"{folder} holds what no import made ({named}), and would be replaced: move that away")


def check_source(source: Path) -> None:
    """See that the source is not packed already; ImportFailed where it is."""
    if (source / FILE).is_file():
        raise ImportFailed(f"{source} is a packed folder already: serve it, or import what it was made of")


def sizes(folder: Path) -> dict[str, int]:
    """The files of a folder that is finished but for its manifest, which keeps them; bytes by name."""
    return {path.name: path.stat().st_size for path in sorted(folder.iterdir()) if path.name != FILE}


def damage(folder: Path) -> str | None:
    """What a packed folder lacks of what its import wrote, in words; None where it is whole."""
    try:
        manifest = read_manifest(folder)
        if manifest is None:
            return f"it has no {FILE}"
        if not manifest.files:
            genai_files(folder)
    except BrokenSource as error:
        return str(error)
    for name, size in manifest.files.items():
        path = folder / name
        if not path.is_file():
            return f"{name} is gone"
        if (found := path.stat().st_size) < size:
            return f"{name} has {found} bytes of {size}"
    return None


def _is_own(name: str, manifest: Manifest | None) -> bool:
    if name in _ALWAYS or (manifest is not None and name in manifest.files):
        return True
    listed = manifest is not None and manifest.files
    return not listed and (name in _BEFORE or name.endswith((".onnx", ".data", ".weights")))
