import io
import math
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import msgspec
import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from rich.console import Console

from scheduler.config import EngineConfig
from scheduler.errors import ModelFolderError
from scheduler.model.importing import ImportOptions, Silent, import_model
from scheduler.model.importing.quality import Floats, Quality, all_logits, compare, log_softmax, measure, step_times
from scheduler.model.importing.quality_report import Choice, Report, render, report
from scheduler.model.session import PackedSession
from scheduler.model.spec import ModelSpec
from tests.scheduler.model.importing.tiny_gguf import TinyLlama

MODEL = TinyLlama(context=128)
TEXT = [int(token) for token in np.random.default_rng(1).integers(3, 128, 70)]
LONG = TEXT * 3


@pytest.fixture(scope="module")
def quantised(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("quantised")
    import_model(
        MODEL.write(folder / "tiny.gguf"),
        folder / "packed",
        ImportOptions(weights="int8", kv_cache="float32"),
        Silent(),
    )
    return folder / "packed"


@pytest.fixture(scope="module")
def exact(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The same model in float32."""
    folder = tmp_path_factory.mktemp("exact")
    source = MODEL.write(folder / "tiny.gguf")
    import_model(source, folder / "packed", ImportOptions(weights="float32", kv_cache="float32"), Silent())
    return folder / "packed"


def logits_of(folder: Path, tokens: list[int], chunk: int) -> Floats:
    config = EngineConfig(slots=1, context=len(tokens), step_rows=chunk, threads=1)
    with closing(PackedSession(ModelSpec.from_folder(folder), config)) as session:
        return np.concatenate([piece.copy() for piece in all_logits(session, tokens, chunk)])


def probabilities(*rows: list[float]) -> Floats:
    return np.log(np.array(rows, np.float32))


def pieces(logits: Floats, size: int) -> Iterator[Floats]:
    return (logits[start : start + size] for start in range(0, len(logits), size))


def naive(reference: Floats, candidate: Floats, tokens: list[int]) -> Quality:
    """The definitions, a row at a time, by way of probabilities."""

    def softmax(row: npt.NDArray[np.float32]) -> list[float]:
        weights = [math.exp(float(x)) for x in row]
        return [weight / sum(weights) for weight in weights]

    p, q = [softmax(row) for row in reference], [softmax(row) for row in candidate]
    divergence = [sum(a * math.log(a / b) for a, b in zip(x, y, strict=True)) for x, y in zip(p, q, strict=True)]
    same = [int(np.argmax(x)) == int(np.argmax(y)) for x, y in zip(reference, candidate, strict=True)]

    def perplexity(rows: list[list[float]]) -> float:
        losses = [-math.log(row[token]) for row, token in zip(rows, tokens[1:], strict=False)]
        return math.exp(sum(losses) / len(losses))

    return Quality(sum(divergence) / len(p), sum(same) / len(p), perplexity(q), perplexity(p))


finite = st.floats(-20, 20, width=32)


@st.composite
def pairs(draw: st.DrawFn) -> tuple[Floats, Floats, list[int], int]:
    """Logits of two models after the tokens of a text, and the size of their pieces."""
    shape = draw(st.tuples(st.integers(2, 70), st.integers(2, 9)))
    one, other = draw(arrays(np.float32, shape, elements=finite)), draw(arrays(np.float32, shape, elements=finite))
    tokens = draw(st.lists(st.integers(0, shape[1] - 1), min_size=shape[0], max_size=shape[0]))
    return one, other, tokens, draw(st.integers(1, shape[0]))


@given(pairs())
def test_a_measurement_is_what_the_definitions_say_however_it_is_cut(
    pair: tuple[Floats, Floats, list[int], int],
) -> None:
    one, other, tokens, size = pair
    found, expected = measure(pieces(one, size), pieces(other, size), tokens), naive(one, other, tokens)
    assert msgspec.structs.astuple(found) == pytest.approx(msgspec.structs.astuple(expected), rel=1e-9, abs=1e-12)
    assert found.kl > -1e-12


@given(pairs())
def test_a_model_does_not_differ_from_itself(pair: tuple[Floats, Floats, list[int], int]) -> None:
    one, _, tokens, size = pair
    found = measure(pieces(one, size), pieces(one, size), tokens)
    assert (found.kl, found.top1) == (0.0, 1.0)
    assert found.perplexity == found.reference_perplexity


@given(arrays(np.float32, (4, 7), elements=finite))
def test_perplexity_is_exp_of_the_mean_negative_log_likelihood(logits: Floats) -> None:
    tokens = [0, 3, 6, 2]
    likelihoods = log_softmax(logits)[[0, 1, 2], tokens[1:]]
    assert measure([logits], [logits], tokens).perplexity == pytest.approx(math.exp(-likelihoods.mean()))


def test_two_coins_differ_by_what_a_hand_computes() -> None:
    fair, loaded = probabilities([0.5, 0.5], [0.5, 0.5], [0.5, 0.5]), probabilities(*[[0.25, 0.75]] * 3)
    quality = measure([fair], [loaded], [1, 0, 1])
    assert quality.kl == pytest.approx(0.5 * math.log(2) + 0.5 * math.log(2 / 3), rel=1e-6)
    assert quality.top1 == 0.0  # of two equals, the first counts as the likeliest
    assert quality.reference_perplexity == pytest.approx(2.0, rel=1e-6)
    assert quality.perplexity == pytest.approx((0.25 * 0.75) ** -0.5, rel=1e-6)


def test_logits_far_from_zero_neither_overflow_nor_vanish() -> None:
    far = np.array([[3e4, 3e4 - 1, -3e4], [-3e4, 3e4, 3e4]], np.float32)
    near = np.array([[0, -1, -80], [-80, 0, 0]], np.float32)
    quality = measure([far], [near], [0, 1])
    assert quality.kl == pytest.approx(0.0, abs=1e-12)
    assert quality.reference_perplexity == pytest.approx(1 + math.e, rel=1e-6)


@pytest.mark.parametrize("chunk", [3, 16, 23, 69, 70, 256])
def test_all_logits_are_those_of_the_model_whatever_the_chunk(chunk: int, exact: Path) -> None:
    np.testing.assert_allclose(logits_of(exact, TEXT, chunk), MODEL.forward(TEXT), atol=1e-4)


def test_a_text_of_one_token_has_logits_too(exact: Path) -> None:
    np.testing.assert_allclose(logits_of(exact, [42], 16), MODEL.forward([42]), atol=1e-4)


def test_folders_are_compared_by_the_logits_they_give(exact: Path, quantised: Path) -> None:
    texts = {"one": TEXT, "other": TEXT[:9]}
    found = compare(exact, quantised, texts)
    for name, tokens in texts.items():
        expected = naive(logits_of(exact, tokens, 256), logits_of(quantised, tokens, 256), tokens)
        assert msgspec.structs.astuple(found[name]) == pytest.approx(msgspec.structs.astuple(expected), rel=1e-4)
    assert 0 < found["one"].kl < 0.1


def test_a_folder_compared_to_itself_shows_no_difference(quantised: Path) -> None:
    quality = compare(quantised, quantised, {"text": TEXT})["text"]
    assert (quality.kl, quality.top1) == (0.0, 1.0)


def test_a_text_beyond_the_context_is_cut_to_it(exact: Path, quantised: Path) -> None:
    cut = LONG[: MODEL.context]
    assert compare(exact, quantised, {"text": LONG}) == compare(exact, quantised, {"text": cut})


@pytest.mark.parametrize("cached", [1, 2, 64, 5000])
def test_every_number_of_rows_is_timed(cached: int, quantised: Path) -> None:
    times = step_times(quantised, rows=(4, 1), cached=cached, repeats=3)
    assert list(times) == [4, 1]
    assert all(seconds > 0 for seconds in times.values())


def test_a_folder_that_is_no_model_is_not_measured(exact: Path, tmp_path: Path) -> None:
    with pytest.raises(ModelFolderError):
        compare(exact, tmp_path, {"text": TEXT})


def test_a_report_has_every_choice_on_both_texts_and_survives_json(exact: Path, quantised: Path) -> None:
    made = report({"float32": exact, "int8": quantised}, exact)
    assert [choice.name for choice in made.choices] == ["float32", "int8"]
    for choice in made.choices:
        assert list(choice.quality) == ["technical", "literary"]
        assert list(choice.step_seconds) == [1, 8, 32]
    assert made.choices[0].quality["literary"].kl == 0.0
    assert made.choices[0].size > made.choices[1].size
    assert msgspec.json.decode(msgspec.json.encode(made), type=Report) == made


def test_a_report_is_drawn_within_eighty_columns() -> None:
    qualities = {"technical": Quality(0.0352, 0.8766, 23.6, 22.56), "literary": Quality(0.0317, 0.8549, 40.27, 39.46)}
    steps = {1: 0.0126, 8: 0.0183, 32: 0.0361}
    drawn = io.StringIO()
    choice = Choice("int8 x 8 and 16", qualities, steps, 252_665_133)
    Console(file=drawn, width=80).print(render(Report([choice])))
    lines = [" ".join(line.split()) for line in drawn.getvalue().splitlines()]
    at = lines.index("int8 x 8 and 16 12.6 18.3 36.1 252.7 MB")
    assert lines[at - 3 : at] == ["reference", "technical 22.56", "literary 39.46"]
    assert lines[at + 1 : at + 3] == ["technical 0.0352 87.7% 23.60", "literary 0.0317 85.5% 40.27"]
