"""Logprobs as clients get them, against references that share no code with the server."""

import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime_genai as og
import pytest
from numpy.typing import NDArray

from scheduler.model.importing import ImportOptions, Silent, import_model
from tests.conftest import model_folder
from tests.server.live import Live, serving
from tests.server.reference import Llama, exact_copy, log_softmax

PROMPT = [(37 * i + 11) % 600 + 20 for i in range(70)]
TOLERANCE = 1e-4

EXACT = ImportOptions(weights="float32", kv_cache="float32")
"""The folder's own weights and no rounding: what is measured here is the path of the numbers, not what it loses."""


@pytest.fixture(scope="module")
def llama() -> Llama:
    return Llama(model_folder("llama-int4"))


@pytest.fixture(scope="module")
def live(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Live]:
    packed = tmp_path_factory.mktemp("packed") / "llama"
    import_model(model_folder("llama-int4"), packed, EXACT, Silent())
    with serving(str(packed), "--step-rows", "32") as server:
        yield server


@pytest.fixture(scope="module")
def exact(llama: Llama) -> NDArray[np.float64]:
    return llama.logprobs(PROMPT)


def ask(live: Live, **fields: object) -> dict[str, Any]:
    response = live.post("/v1/completions", {"prompt": PROMPT, "temperature": 0, **fields})
    assert response.status_code == 200, response.text
    choice: dict[str, Any] = response.json()["choices"][0]
    return choice


@pytest.fixture(scope="module")
def ids(live: Live) -> dict[str, int]:
    """Each token's id by its spelling."""
    spellings = ask(live, prompt=list(range(640)), echo=True, max_tokens=0, logprobs=0)["logprobs"]["tokens"]
    return {spelling: id_ for id_, spelling in enumerate(spellings)}


def test_echoed_logprobs_are_those_of_a_float64_forward_pass(live: Live, exact: NDArray[np.float64]) -> None:
    found = ask(live, echo=True, max_tokens=0, logprobs=5)["logprobs"]
    assert found["token_logprobs"][0] is None
    assert found["top_logprobs"][0] is None
    expected = exact[np.arange(len(PROMPT) - 1), PROMPT[1:]]
    np.testing.assert_allclose(found["token_logprobs"][1:], expected, atol=TOLERANCE)
    for place, top in enumerate(found["top_logprobs"][1:]):
        likeliest = sorted(top.values(), reverse=True)[:5]
        np.testing.assert_allclose(likeliest, np.sort(exact[place])[::-1][:5], atol=TOLERANCE)


def test_prompt_logprobs_name_ids_ranks_and_the_likeliest(live: Live, exact: NDArray[np.float64]) -> None:
    found = ask(live, max_tokens=1, prompt_logprobs=3)["prompt_logprobs"]
    assert found[0] is None
    for place, (token, told) in enumerate(zip(PROMPT[1:], found[1:], strict=True)):
        assert set(map(int, told)) == {token, *np.argsort(-exact[place])[:3].tolist()}
        assert told[str(token)]["rank"] == 1 + int((exact[place] > exact[place][token]).sum())
        for id_, entry in told.items():
            assert abs(entry["logprob"] - exact[place][int(id_)]) < TOLERANCE


def test_perplexity_by_echo_is_that_of_a_direct_forward_pass(live: Live, exact: NDArray[np.float64]) -> None:
    told = ask(live, echo=True, max_tokens=0, logprobs=0)["logprobs"]["token_logprobs"][1:]
    direct = exact[np.arange(len(PROMPT) - 1), PROMPT[1:]]
    assert math.exp(-np.mean(told)) == pytest.approx(math.exp(-direct.mean()), rel=TOLERANCE)


def test_new_tokens_logprobs_are_of_the_distribution_before_everything_that_changes_it(
    live: Live, llama: Llama, ids: dict[str, int]
) -> None:
    changed = {"temperature": 1.7, "top_p": 0.8, "seed": 3, "repetition_penalty": 1.4, "logit_bias": {"40": 20}}
    choice = ask(live, **{"max_tokens": 12, "logprobs": 0, "ignore_eos": True, **changed})
    tokens = [ids[spelling] for spelling in choice["logprobs"]["tokens"]]
    exact = llama.logprobs(PROMPT + tokens)
    expected = [exact[len(PROMPT) - 1 + i, token] for i, token in enumerate(tokens)]
    np.testing.assert_allclose(choice["logprobs"]["token_logprobs"], expected, atol=TOLERANCE)


@pytest.mark.parametrize("name", ["llama-int4", "gemma2-int4", "qwen3-int4", "gpt-oss-fp32"])
def test_logprobs_are_those_of_onnxruntime_genai_s_logits(name: str, tmp_path: Path) -> None:
    source = model_folder(name)
    copy = exact_copy(source, tmp_path / "exact")
    generator = og.Generator(model := og.Model(str(copy)), og.GeneratorParams(model))
    generator.append_tokens(PROMPT)
    exact = log_softmax(np.array(generator.get_output("logits"))[0].astype(np.float64))
    import_model(source, tmp_path / "packed", EXACT, Silent())
    with serving(str(tmp_path / "packed")) as live:
        found = ask(live, echo=True, max_tokens=0, logprobs=0)["logprobs"]["token_logprobs"][1:]
    np.testing.assert_allclose(found, exact[np.arange(len(PROMPT) - 1), PROMPT[1:]], atol=TOLERANCE)
