import json
from itertools import islice
from pathlib import Path

import numpy as np
import pytest

from server.load.lengths import lengths
from server.load.prompts import Ask, Form, Wanted, from_file, made_up

RANDOM = np.random.Generator(np.random.PCG64(1))


@pytest.mark.parametrize(
    ("text", "low", "high", "mean"),
    [
        ("128", 128, 128, 128),
        ("64-256", 64, 256, 160),
        ("uniform(64, 256)", 64, 256, 160),
        ("normal(200, 20)", 100, 300, 200),
        ("lognormal(100, 0.5)", 1, 2000, 113),
        ("normal(1, 50)", 1, 300, 20),
    ],
)
def test_lengths_have_their_bounds_and_their_mean(text: str, low: int, high: int, mean: float) -> None:
    drawn = [lengths(text).sample(RANDOM) for _ in range(4000)]
    assert low <= min(drawn) <= max(drawn) <= high
    assert sum(drawn) / len(drawn) == pytest.approx(mean, rel=0.1)


@pytest.mark.parametrize("text", ["", "-1", "9-3", "zipf(1, 2)", "normal(1)", "lognormal(0, 1)"])
def test_what_is_no_length_is_refused(text: str) -> None:
    with pytest.raises(ValueError, match=r"length|before|distribution|median"):
        lengths(text)


def first(form: Form, count: int = 3, *, shared: int = 0, seed: int = 0) -> list[Ask]:
    wanted = Wanted(form, lengths("10"), lengths("4"), shared, (50, 60), 0.5, {"model": "m"}, seed)
    return list(islice(made_up(wanted), count))


def test_token_ids_are_as_long_as_asked_in_range_and_random_behind_a_shared_beginning() -> None:
    prompts = [json.loads(ask.body)["prompt"] for ask in first("ids", 50, shared=5)]
    assert {len(prompt) for prompt in prompts} == {15}
    assert {id_ for prompt in prompts for id_ in prompt} == set(range(50, 60))
    assert len({tuple(prompt[:5]) for prompt in prompts}) == 1
    assert len({tuple(prompt[5:]) for prompt in prompts}) == 50


def test_the_same_seed_asks_the_same() -> None:
    assert first("ids") == first("ids")
    assert first("ids") != first("ids", seed=1)


def test_words_and_chats_carry_as_many_words_as_make_the_tokens() -> None:
    (text, *_), (chat, *_) = first("text", shared=4), first("chat")
    assert len(json.loads(text.body)["prompt"].split()) == 7
    assert len(json.loads(chat.body)["messages"][0]["content"].split()) == 5
    assert (text.path, chat.path) == ("/v1/completions", "/v1/chat/completions")
    assert json.loads(chat.body)["max_tokens"] == 4


def test_a_file_s_lines_come_round_and_their_own_fields_win(tmp_path: Path) -> None:
    file = tmp_path / "prompts"
    file.write_text('one\n\n{"prompt": "two", "max_tokens": 9}\n')
    bodies = [json.loads(ask.body) for ask in islice(from_file(file, "text", lengths("4"), {}, 0), 3)]
    assert [(body["prompt"], body["max_tokens"]) for body in bodies] == [("one", 4), ("two", 9), ("one", 4)]
    file.write_text("\n")
    with pytest.raises(ValueError, match="no prompts"):
        next(from_file(file, "text", lengths("4"), {}, 0))
