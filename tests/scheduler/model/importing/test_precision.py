"""What the options leave open is settled by the source, and told with its reason."""

from pathlib import Path

import pytest
from gguf import GGMLQuantizationType

from scheduler.model.importing import ImportOptions
from scheduler.model.importing.genai_source import read_genai
from scheduler.model.importing.gguf_source import read_gguf
from scheduler.model.importing.manifest import KvCache, Weights
from scheduler.model.importing.precision import decide
from tests.conftest import model_folder
from tests.scheduler.model.importing.tiny_gguf import TinyLlama


@pytest.mark.parametrize(
    ("name", "options", "weights", "cache", "says"),
    [
        ("llama-int4", ImportOptions(), "keep", "float16", "own blocks"),
        ("gpt-oss-fp32", ImportOptions(), "int8", "float16", "floats"),
        ("llama-int4", ImportOptions(weights="int8"), "int8", "float16", "int8, as asked"),
        ("gpt-oss-fp32", ImportOptions(weights="keep"), "keep", "float16", "keep, as asked"),
        ("llama-int4", ImportOptions(weights="float32"), "float32", "float16", "float32, as asked"),
        ("llama-int4", ImportOptions(kv_cache="int8"), "keep", "int8", "cache int8, as asked"),
        ("llama-int4", ImportOptions(kv_cache="float32"), "keep", "float32", "cache float32, as asked"),
    ],
)
def test_every_choice_is_said_with_its_reason(
    name: str, options: ImportOptions, weights: Weights, cache: KvCache, says: str
) -> None:
    precision = decide(read_genai(model_folder(name), None), options)
    assert (precision.weights, precision.kv_cache) == (weights, cache)
    assert any(says in reason for reason in precision.reasons)


@pytest.mark.parametrize(("kind", "weights"), [("Q4_1", "keep"), ("Q8_0", "keep"), ("F16", "int8"), ("F32", "int8")])
def test_a_gguf_file_is_kept_where_it_is_quantised(kind: str, weights: Weights, tmp_path: Path) -> None:
    source = TinyLlama(kind=GGMLQuantizationType[kind]).write(tmp_path / "tiny.gguf")
    assert decide(read_gguf(source, None), ImportOptions()).weights == weights
