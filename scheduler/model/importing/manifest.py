"""`paceline.json`: what a packed folder says about how it was made. Written last; a folder without it is not finished.

Knows the file's form; not how a folder is made, nor what a server needs of it beyond `check`.
"""

from datetime import UTC, datetime
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from typing import Literal

import msgspec

from scheduler.model.importing.errors import BrokenSource, ImportFailed
from scheduler.model.importing.logical import RopeSwitch

FORMAT = 3
FILE = "paceline.json"


Weights = Literal["auto", "keep", "int8", "float32"]
KvCache = Literal["auto", "float32", "float16", "int8"]
Purpose = Literal["import", "cache", "bench"]
"""Who made a folder: the command of that name, or a server for its cache."""


class ImportOptions(msgspec.Struct, frozen=True):
    """What can be chosen at import.

    Attributes:
        context: the context that will be served, in tokens; None is the model's own.
        name: what the model is called; None is what the source calls it.
        weights: of the linear layers: the source's own, int8 with a scale for each output, or float32 to measure others
            by.
        kv_cache: what keys and values are kept as.
    """

    context: int | None = None
    name: str | None = None
    weights: Weights = "auto"
    kv_cache: KvCache = "auto"


class SourceRecord(msgspec.Struct, frozen=True):
    """Where a packed folder came from; `sha256` is of its files' names and content, in order of name."""

    path: str
    kind: Literal["gguf", "genai"]
    sha256: str


class Manifest(msgspec.Struct, frozen=True):
    """What was imported, by which versions, with which options, and what was done to it.

    `weights` and `kv_cache` are what the options came to; `max_context` is the longest context that can be served, in
    tokens; `vocab_size` the width of the logits;
    `created` is UTC in ISO form; `files` are the bytes of the folder's other files by name, empty in older manifests.
    """

    name: str
    source: SourceRecord
    options: ImportOptions
    max_context: int
    vocab_size: int
    done: list[str]
    rope_switch: RopeSwitch | None
    weights: Weights
    kv_cache: KvCache
    created: str
    versions: dict[str, str]
    format: int = FORMAT
    purpose: Purpose = "import"
    files: dict[str, int] = {}

    def check(self, options: ImportOptions) -> None:
        """See that this version can serve the folder as the options want it.

        Raises:
            ImportFailed: The form is another version's, or the folder was made for other options.

        """
        self._check_precision(options)
        context = options.context
        if self.format != FORMAT:
            message = f"the packed folder of {self.name} has form {self.format}, this version reads {FORMAT}"
            raise ImportFailed(f"{message}: import the model anew from {self.source.path}")
        if context is None:
            return
        if self.rope_switch is not None and not self.rope_switch.fits(context):
            message = (
                f"{self.name} was imported with the {self.rope_switch.chosen} rotary tables of its longrope, which"
            )
            side = "up to" if self.rope_switch.chosen == "short" else "above"
            remedy = f"import it anew for a context of {context} tokens, or choose another context"
            raise ImportFailed(f"{message} serve contexts {side} {self.rope_switch.original} tokens: {remedy}")
        if context > self.max_context:
            message = f"{self.name} serves contexts up to {self.max_context} tokens, {context} were asked for"
            raise ImportFailed(f"{message}: choose a shorter context")

    def _check_precision(self, options: ImportOptions) -> None:
        choices: tuple[tuple[str, str, str], ...] = (
            ("weights", options.weights, self.weights),
            ("KV cache", options.kv_cache, self.kv_cache),
        )
        for what, wanted, own in choices:
            if wanted not in ("auto", own):
                message = f"{self.name} was imported with {what} {own}, and {wanted} is asked for"
                raise ImportFailed(f"{message}: import it anew from {self.source.path}")


def read_manifest(folder: Path) -> Manifest | None:
    """Read the folder's manifest, or None if it has none and is no finished packed folder.

    Raises:
        BrokenSource: The file is there but is no manifest of any version.

    """
    try:
        content = (folder / FILE).read_bytes()
    except (FileNotFoundError, NotADirectoryError):
        return None
    try:
        return msgspec.json.decode(content, type=Manifest)
    except msgspec.MsgspecError as error:
        message = f"{folder / FILE} is no manifest this version can read ({error})"
        raise BrokenSource(f"{message}: import the model anew") from error


def write_manifest(folder: Path, manifest: Manifest) -> None:
    """Write the folder's manifest."""
    (folder / FILE).write_bytes(msgspec.json.format(msgspec.json.encode(manifest), indent=2) + b"\n")


def now() -> str:
    """Tell the time, UTC in ISO form to the second."""
    return datetime.now(UTC).isoformat(timespec="seconds")


def versions() -> dict[str, str]:
    """Tell the versions that made a folder, by distribution."""
    return {name: _version(name) for name in ("paceline", "onnxruntime", "onnxruntime-genai", "onnx-ir", "gguf")}


def _version(name: str) -> str:
    try:
        return version(name)
    except PackageNotFoundError:
        return "not installed"
