import re
from itertools import combinations
from pathlib import Path

import pytest
from tokenizers import Tokenizer, models, pre_tokenizers, processors

from scheduler.model.importing import BrokenSource
from scheduler.model.importing.texts import HELD_OUT, PIECE, calibration_tokens, held_out, read_text
from tests.conftest import model_folder

NAMES = ("calibration", *HELD_OUT)


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


@pytest.mark.parametrize(("one", "other"), [*combinations(NAMES, 2)])
def test_no_two_texts_share_a_sentence(one: str, other: str) -> None:
    assert len(sentences(one)) > 50
    assert sentences(one).isdisjoint(sentences(other))


def test_the_calibration_text_has_code_chats_and_many_scripts() -> None:
    text = read_text("calibration")
    for sign in ("def ", "#include", "SELECT", '"sku"', "User:", "Assistant:", "ß", "é", "¿", "的", "ы", "の", "ال"):
        assert sign in text


@pytest.mark.parametrize("name", NAMES)
def test_texts_are_long_enough_and_free_of_control_characters(name: str) -> None:
    text = read_text(name)
    assert len(text) > 6000
    assert all(c == "\n" or c.isprintable() for c in text)


def test_the_pieces_are_the_calibration_text_cut_by_the_folders_tokenizer() -> None:
    folder = model_folder("llama-int4")
    pieces = calibration_tokens(folder)
    whole = Tokenizer.from_file(str(folder / "tokenizer.json")).encode(read_text("calibration")).ids
    assert [token for piece in pieces for token in piece] == whole
    assert [len(piece) for piece in pieces[:-1]] == [PIECE] * (len(pieces) - 1)
    assert 0 < len(pieces[-1]) <= PIECE


def test_the_held_out_texts_come_back_from_their_tokens() -> None:
    folder = model_folder("llama-int4")
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    assert {name: tokenizer.decode(ids) for name, ids in held_out(folder).items()} == {
        name: read_text(name) for name in HELD_OUT
    }


def test_every_piece_begins_as_the_models_texts_do_and_none_is_ended(tmp_path: Path) -> None:
    folder = with_ends(tmp_path)
    pieces = [*calibration_tokens(folder), *held_out(folder).values()]
    assert {piece[0] for piece in pieces} == {0}
    assert not {0, 1} & {token for piece in pieces for token in piece[1:]}
    assert sum(len(piece) - 1 for piece in calibration_tokens(folder)) == len(read_text("calibration"))


def test_a_folder_without_a_tokenizer_is_refused_by_the_file_s_name(tmp_path: Path) -> None:
    with pytest.raises(BrokenSource, match=r"tokenizer\.json"):
        held_out(tmp_path)
