"""Turns models as they are found (GGUF, onnxruntime-genai) into packed folders that the session runs."""

from scheduler.model.importing.cache import cached_import
from scheduler.model.importing.errors import BrokenSource, ImportFailed, UnsupportedModel
from scheduler.model.importing.importer import import_model
from scheduler.model.importing.manifest import FORMAT, ImportOptions, Manifest, read_manifest
from scheduler.model.importing.progress import Progress, Silent

__all__ = [
    "FORMAT",
    "BrokenSource",
    "ImportFailed",
    "ImportOptions",
    "Manifest",
    "Progress",
    "Silent",
    "UnsupportedModel",
    "cached_import",
    "import_model",
    "read_manifest",
]
