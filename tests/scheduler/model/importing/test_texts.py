import re
from itertools import combinations
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from scheduler.model.importing import BrokenSource
from scheduler.model.importing.texts import HELD_OUT, held_out, read_text
from tests.conftest import model_folder


def sentences(name: str) -> set[str]:
    return {s.strip() for s in re.split(r"[.!?:;|\n]", read_text(name)) if len(s.strip()) > 12}


def with_ends(folder: Path) -> Path:
    """A folder whose tokenizer knows letters alone, and puts <s> before each text and </s> behind it."""
    vocabulary = {"<s>": 0, "</s>": 1, "<unk>": 2} | {chr(c): c - 94 for c in range(97, 123)}
    tokenizer = Tokenizer(models.WordLevel(vocabulary, unk_token="<unk>"))
    tokenizer.pre_tokenizer = pre_tokenizers.Split("", "isolated")
    tokenizer.post_processor = processors.TemplateProcessing("<s> $A </s>", None, [("<s>", 0), ("</s>", 1)])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


@pytest.mark.parametrize(("one", "other"), [*combinations(HELD_OUT, 2)])
def test_no_two_texts_share_a_sentence(one: str, other: str) -> None:
    assert len(sentences(one)) > 50
    assert sentences(one).isdisjoint(sentences(other))


@pytest.mark.parametrize("name", HELD_OUT)
def test_texts_are_long_enough_and_free_of_control_characters(name: str) -> None:
    text = read_text(name)
    assert len(text) > 6000
    assert all(c == "\n" or c.isprintable() for c in text)


def test_the_held_out_texts_come_back_from_their_tokens() -> None:
    folder = model_folder("llama-int4")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert {name: tokenizer.decode(ids) for name, ids in held_out(folder).items()} == {
        name: read_text(name) for name in HELD_OUT
    }


def test_every_text_begins_as_the_models_texts_do_and_none_is_ended(tmp_path: Path) -> None:
    pieces = held_out(with_ends(tmp_path)).values()
    assert {piece[0] for piece in pieces} == {0}
    assert not {0, 1} & {token for piece in pieces for token in piece[1:]}
    assert [len(piece) - 1 for piece in pieces] == [len(read_text(name)) for name in HELD_OUT]


def test_a_folder_without_a_tokenizer_is_refused_by_the_file_s_name(tmp_path: Path) -> None:
    with pytest.raises(BrokenSource, match=r"tokenizer\.json"):
        held_out(tmp_path)
