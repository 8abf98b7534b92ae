"""The order of an import: read the source, pack it, write the folder.

Knows which stages there are, and leaves each to its own file.
"""

import hashlib
import json
from collections.abc import Callable, Iterable
from pathlib import Path

import msgspec

from scheduler.model.importing.errors import BrokenSource, ImportFailed
from scheduler.model.importing.genai_source import CONFIG, genai_files, read_genai
from scheduler.model.importing.gguf_source import gguf_files, read_gguf
from scheduler.model.importing.graph_file import save
from scheduler.model.importing.logical import LogicalModel
from scheduler.model.importing.made import check_replaceable, check_source, check_target, sizes
from scheduler.model.importing.manifest import (
    ImportOptions,
    Manifest,
    Purpose,
    SourceRecord,
    now,
    versions,
    write_manifest,
)
from scheduler.model.importing.naming import model_inside
from scheduler.model.importing.pack import Packed, pack
from scheduler.model.importing.precision import Precision, decide, restore_floats
from scheduler.model.importing.progress import Progress
from scheduler.model.importing.target import locked, write_folder
from scheduler.model.importing.weights import detach

_CHUNK = 4 << 20
GRAPH = "model.onnx"


def import_model(source: Path, target: Path, options: ImportOptions, progress: Progress) -> Manifest:
    """Make a packed folder of a GGUF file or a folder of onnxruntime-genai.

    The target appears whole or not at all. An older packed folder is replaced whole; nothing else is, and the source is
    never written to.

    Raises:
        UnsupportedModel: The source needs what the packed form does not have.
        BrokenSource: Files are missing or unreadable.
        ImportFailed: The target cannot be written or replaced, or the options do not fit the model.

    """
    check_source(source)
    target = _resolved(target)
    check_target(_resolved(source), target)
    with locked(target, progress):
        return import_locked(source, target, options, progress)


def _resolved(path: Path) -> Path:
    try:
        return path.resolve()
    except (OSError, RuntimeError) as error:  # RuntimeError: links that lead to each other
        raise ImportFailed(f"{path} leads nowhere ({error}): choose another path") from error


def import_locked(
    source: Path, target: Path, options: ImportOptions, progress: Progress, purpose: Purpose = "import"
) -> Manifest:
    """As `import_model`, for a caller who holds the target's lock and knows that it may be replaced."""
    files = source_files(source)
    logical = read_gguf(source, options.context) if _is_gguf(source) else read_genai(source, options.context)

    def record() -> SourceRecord:
        return SourceRecord(path=source.name, kind=logical.kind, sha256=_digest(files, progress))

    return import_logical(logical, target, options, progress, record, purpose)


def import_logical(
    logical: LogicalModel,
    target: Path,
    options: ImportOptions,
    progress: Progress,
    record: Callable[[], SourceRecord],
    purpose: Purpose,
) -> Manifest:
    """Pack, quantise and write a logical model, for a caller who holds the target's lock.

    `record` says where the model came from; it is asked when the weights are written.
    """
    precision = decide(logical, options)
    if precision.weights == "float32":
        restore_floats(logical.model, logical)
    head_size = logical.config["model"]["decoder"]["head_size"]
    packed = pack(logical.model, head_size, logical.stored, precision.kept, precision.kv_cache)
    notes = [*logical.notes, *precision.reasons, _told(packed)]
    made: list[Manifest] = []

    def fill(folder: Path) -> None:
        _write_files(logical, folder)
        packed.file.write(folder, progress)
        detach(logical.model.graph)
        save(logical.model, folder / GRAPH, "write what is left as it was", progress)
        manifest = _manifest(logical, options, precision, record(), notes)
        made.append(msgspec.structs.replace(manifest, purpose=purpose, files=sizes(folder)))
        write_manifest(folder, made[0])

    write_folder(target, fill, check_replaceable)
    return made[0]


def _told(packed: Packed) -> str:
    left = f", {packed.left} left as they are" if packed.left else ""
    return f"Packed for steps over many requests: {packed.fused} linear layers in operators of our own{left}."


def source_files(source: Path) -> list[Path]:
    """List the files a source consists of, in order of name.

    Raises:
        BrokenSource: The source is no model of a known kind.

    """
    if _is_gguf(source):
        return gguf_files(source)
    if (source / CONFIG).is_file():
        return genai_files(source)
    message = f"{source} is neither a GGUF file nor a folder with a {CONFIG}"
    inside = model_inside(source, CONFIG)
    raise BrokenSource(f"{message}: give the path of a model" + (f", as {inside} is" if inside else ""))


def _is_gguf(source: Path) -> bool:
    if not source.is_file():
        return False
    with source.open("rb") as file:
        return file.read(4) == b"GGUF"


def _write_files(logical: LogicalModel, folder: Path) -> None:
    """Write what goes with the graph."""
    for path in logical.copies:
        (folder / path.name).write_bytes(path.read_bytes())
    for name, text in logical.texts.items():
        (folder / name).write_text(text, encoding="utf-8")
    config = logical.config
    config["model"]["context_length"] = logical.max_context
    config["model"]["decoder"]["filename"] = GRAPH
    (folder / CONFIG).write_text(json.dumps(config, indent=4) + "\n", encoding="utf-8")


def _digest(files: Iterable[Path], progress: Progress) -> str:
    """Hash the files' names and content, sha256."""
    files = list(files)
    progress.start("hash the source", sum(path.stat().st_size for path in files))
    digest = hashlib.sha256()
    for path in files:
        digest.update(path.name.encode() + b"\0")
        with path.open("rb") as reader:
            while chunk := reader.read(_CHUNK):
                digest.update(chunk)
                progress.advance(len(chunk))
    progress.done()
    return digest.hexdigest()


def _manifest(
    logical: LogicalModel, options: ImportOptions, precision: Precision, source: SourceRecord, done: list[str]
) -> Manifest:
    shape = logical.model.graph.outputs[0].shape
    width = shape[-1] if shape is not None else None
    return Manifest(
        name=options.name or logical.name,
        source=source,
        options=options,
        max_context=logical.max_context,
        vocab_size=width if isinstance(width, int) else int(logical.config["model"]["vocab_size"]),
        done=done,
        rope_switch=logical.rope_switch,
        weights=precision.weights,
        kv_cache=precision.kv_cache,
        created=now(),
        versions=versions(),
    )
