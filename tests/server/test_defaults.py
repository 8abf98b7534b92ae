"""What a silent request gets: the model's own settings, read from its folder and applied by a real server."""

import json
import logging
import shutil
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.errors import ModelFolderError
from server.defaults import OPENAI, Defaults, model_defaults
from server.schema import parse_chat, parse_completion
from tests.conftest import model_folder
from tests.server.live import Live, serving

BUILDER = {"do_sample": False, "temperature": 1.0, "top_k": 50, "top_p": 1.0, "repetition_penalty": 1.0, "num_beams": 1}
SAMPLES = BUILDER | {"do_sample": True, "temperature": 0.6, "top_p": 0.95}


def folder(path: Path, published: object = None, search: object = None) -> Path:
    if published is not None:
        (path / "generation_config.json").write_text(json.dumps(published))
    (path / "genai_config.json").write_text(json.dumps({"model": {}} | ({} if search is None else {"search": search})))
    return path


@pytest.mark.parametrize(
    ("published", "search", "values"),
    [
        (None, None, {}),
        ({}, {}, {}),
        ({"eos_token_id": 2, "transformers_version": "4"}, None, {}),
        (None, BUILDER, {"temperature": 0.0}),
        (None, {"top_k": 1}, {"temperature": 0.0}),  # onnxruntime-genai is greedy unless told
        (None, BUILDER | {"repetition_penalty": 1.1}, {"temperature": 0.0, "repetition_penalty": 1.1}),
        (None, SAMPLES, {"temperature": 0.6, "top_k": 50, "top_p": 0.95}),
        (None, SAMPLES | {"top_p": 0.0, "top_k": 0}, {"temperature": 0.6}),  # both are off there
        ({"temperature": 0.7, "top_k": 20}, BUILDER, {"temperature": 0.7, "top_k": 20}),
        ({"do_sample": True}, BUILDER, {"temperature": 1.0}),
        ({"do_sample": False, "temperature": 0.7}, SAMPLES, {"temperature": 0.0}),
        ({"eos_token_id": 2}, SAMPLES, {"temperature": 0.6, "top_k": 50, "top_p": 0.95}),
        ({"top_p": 0.8}, SAMPLES, {"top_p": 0.8}),  # sampling is taken from one place as a whole
        ({"repetition_penalty": 1.05}, BUILDER, {"temperature": 0.0, "repetition_penalty": 1.05}),
        ({"max_new_tokens": 64, "min_p": 0.1}, None, {"max_tokens": 64, "min_p": 0.1}),
        ({"temperature": None, "top_k": -1, "top_p": 0.9}, None, {"top_p": 0.9}),
    ],
)  # fmt: skip
def test_a_folder_s_settings_hold_and_openai_s_where_it_has_none(
    published: object, search: object, values: dict[str, object], tmp_path: Path
) -> None:
    assert model_defaults(folder(tmp_path, published, search)).values == OPENAI.values | values


def test_it_is_told_where_they_are_from(tmp_path: Path) -> None:
    assert str(model_defaults(folder(tmp_path, None, BUILDER))) == "temperature 0.0 (from search in genai_config.json)"
    said = str(model_defaults(folder(tmp_path, {"temperature": 0.2, "top_p": 0.9}, BUILDER)))
    assert said == "temperature 0.2, top_p 0.9 (from generation_config.json)"
    assert str(OPENAI) == "temperature 1.0 (from OpenAI)"


@pytest.mark.parametrize(
    ("name", "value"),
    [("temperature", 3), ("temperature", "hot"), ("top_p", 1.5), ("top_k", 2.5), ("max_new_tokens", 0)],
)
def test_what_no_request_could_have_is_left_out_and_told(
    name: str, value: object, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    with caplog.at_level(logging.WARNING, "paceline.server"):
        assert model_defaults(folder(tmp_path, {name: value})).values == OPENAI.values
    assert f"generation_config.json says {name} {value!r}" in caplog.text


def test_a_file_that_is_no_json_object_is_refused(tmp_path: Path) -> None:
    folder(tmp_path)
    (tmp_path / "generation_config.json").write_text("[")
    with pytest.raises(ModelFolderError, match=r"generation_config\.json"):
        model_defaults(tmp_path)


settings = {
    "temperature": st.floats(0, 2),
    "top_p": st.floats(0.01, 1),
    "top_k": st.integers(1, 100),
    "min_p": st.floats(0, 1),
    "repetition_penalty": st.floats(0.1, 10),
    "max_tokens": st.integers(1, 100),
}


@given(own=st.fixed_dictionaries({}, optional=settings), asked=st.fixed_dictionaries({}, optional=settings))
def test_a_request_s_own_value_wins_field_by_field(own: dict[str, Any], asked: dict[str, Any]) -> None:
    defaults = Defaults(**own)
    chat = parse_chat(json.dumps({"messages": [{"role": "user", "content": "a"}], **asked}).encode(), defaults=defaults)
    completion = parse_completion(json.dumps({"prompt": "a", **asked}).encode(), defaults=defaults)
    for call in (chat, completion):
        assert {name: getattr(call.sampling, name) for name in settings} == OPENAI.values | own | asked


def test_a_default_length_makes_way_for_the_tokens_that_are_wanted_at_least() -> None:
    call = parse_completion(b'{"prompt": "a", "min_tokens": 30}', defaults=Defaults(max_tokens=20))
    assert call.sampling.max_tokens == 30


def text(live: Live, **fields: object) -> str:
    body = {"prompt": "The class statement", "max_tokens": 24, "ignore_eos": True, **fields}
    return str(live.post("/v1/completions", body).json()["choices"][0]["text"])


def test_a_silent_request_is_greedy_where_genai_config_does_not_sample(tiny: Live) -> None:
    assert text(tiny) == text(tiny, seed=5) == text(tiny, temperature=0)
    assert text(tiny, temperature=1.0, seed=5) != text(tiny)
    card = tiny.get("/v1/models/tiny").json()
    assert card["generation_config"]["temperature"] == 0
    assert card["generation_config"]["origin"] == "search in genai_config.json"


@pytest.mark.parametrize(
    ("arguments", "holds"),
    [((), {"temperature": 1.3, "top_k": 5}), (("--generation-config", "openai"), {"temperature": 1.0, "top_k": 0})],
)
def test_the_settings_published_with_a_model_hold_unless_openai_s_are_wanted(
    arguments: tuple[str, ...], holds: dict[str, float], tmp_path: Path
) -> None:
    source = shutil.copytree(model_folder("llama-int4"), tmp_path / "model")
    (source / "generation_config.json").write_text('{"temperature": 1.3, "top_k": 5, "max_new_tokens": 7}')
    with serving(str(source), "--cache-dir", str(tmp_path / "cache"), *arguments) as live:
        shown = live.get("/v1/models/model").json()["generation_config"]
        assert {name: shown[name] for name in holds} == holds
        assert shown == live.get("/v1/models").json()["data"][0]["generation_config"]
        assert text(live, seed=3) == text(live, seed=3, **holds)
        assert text(live, seed=3) != text(live, temperature=0)
        usage = live.post("/v1/completions", {"prompt": "a", "ignore_eos": True, "stop": "\x01"}).json()["usage"]
        assert (usage["completion_tokens"] == 7) == (not arguments)
        banner = " ".join("".join(live.log).split())
        assert f"defaults temperature {holds['temperature']}" in banner
