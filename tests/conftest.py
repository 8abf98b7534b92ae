"""Where the tests find their model folders."""

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import settings

from scheduler.model.importing import ImportOptions, Silent, import_model
from scheduler.model.importing.cache import cached_import

settings.register_profile("untimed", deadline=None)  # how long an example takes proves nothing
settings.load_profile("untimed")

HERE = Path(__file__).parent
FOLDERS = {path.name: path for path in sorted((HERE / "models").iterdir()) if path.is_dir()}
SHARED = HERE.parent.parent / "shared" / "models"
FAMILIES = ["gemma2", "gpt-oss", "granite", "llama", "llama3rope", "olmo", "phi3", "phi3-longrope", "qwen2", "qwen3"]
ALL_FOLDERS = [f"{family}-{precision}" for family in FAMILIES for precision in ("fp32", "int4")]
ALL_FOLDERS.remove("gpt-oss-int4")  # the builder makes none


def model_folder(name: str) -> Path:
    """The tiny onnxruntime-genai folder of that name; the test skips aloud where it is not at hand."""
    for path in (FOLDERS.get(name), SHARED / name):
        if path is not None and (path / "genai_config.json").exists():
            return path
    pytest.skip(f"the model folder {name} is not in tests/models, and there is no {SHARED}")


Packed = Callable[[str], Path]
AS_IT_IS = ImportOptions(context=256, weights="keep", kv_cache="float32")
"""A folder's own weights, and the rotary tables for short contexts: what the oracles were made with."""


@pytest.fixture(scope="session")
def packed(tmp_path_factory: pytest.TempPathFactory) -> Packed:
    """Import one of the tiny folders, once in a test run, for contexts up to 256 tokens."""
    done: dict[str, Path] = {}

    def import_once(name: str) -> Path:
        if name not in done:
            target = tmp_path_factory.mktemp("packed") / name
            import_model(model_folder(name), target, AS_IT_IS, Silent())
            done[name] = target
        return done[name]

    return import_once


def default_packed(options: ImportOptions) -> Path:
    """The packed default model in the user's cache, fetched and imported where it is not there yet."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or "~/.cache").expanduser()
    return cached_import(None, base / "paceline", options, Silent())


@pytest.fixture(scope="session")
def default_model() -> Path:
    """As the server has it."""
    return default_packed(ImportOptions())
