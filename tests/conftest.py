"""Where the tests find their model folders."""

from pathlib import Path

import pytest

HERE = Path(__file__).parent
FOLDERS = {path.name: path for path in sorted((HERE / "models").iterdir()) if path.is_dir()}
SHARED = HERE.parent.parent / "shared" / "models"
ALL_FOLDERS = [
    f"{family}-{precision}"
    for family in ("gemma2", "gpt-oss", "granite", "llama", "llama3rope", "olmo", "phi3", "phi3-longrope", "qwen2", "qwen3")
    for precision in ("fp32", "int4")
    if (family, precision) != ("gpt-oss", "int4")
]


def model_folder(name: str) -> Path:
    """The tiny onnxruntime-genai folder of that name; the test skips aloud where it is not at hand."""
    for path in (FOLDERS.get(name), SHARED / name):
        if path is not None and (path / "genai_config.json").exists():
            return path
    pytest.skip(f"the model folder {name} is not in tests/models, and there is no {SHARED}")
