import json
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from scheduler.errors import ModelFolderError
from server.vocabulary import Vocabulary
from tests.conftest import FOLDERS

TOKENIZERS = {name: Tokenizer.from_file(str(folder / "tokenizer.json")) for name, folder in FOLDERS.items()}
VOCABULARIES = {name: Vocabulary.from_folder(folder) for name, folder in FOLDERS.items()}
BYTES = 7  # the id of <0x00> in the SentencePiece-like tokenizer below
TOOL = BYTES + 256


def sentence_piece(decoder: dict[str, Any]) -> dict[str, Any]:
    vocab = {"<unk>": 0, "\u2581": 1, "\u2581the": 2, "re": 3, "é": 4, "<eos>": 5, "<0x": 6}
    vocab |= {f"<0x{byte:02X}>": BYTES + byte for byte in range(256)}
    return {
        "version": "1.0",
        "truncation": None,
        "padding": None,
        "added_tokens": [
            {"id": 5, "content": "<eos>", "special": True}
            | {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False},
            {"id": TOOL, "content": "<tool> é", "special": False}
            | {"single_word": False, "lstrip": False, "rstrip": False, "normalized": False},
        ],
        "normalizer": None,
        "pre_tokenizer": None,
        "post_processor": None,
        "decoder": decoder,
        "model": {"type": "BPE", "unk_token": "<unk>", "byte_fallback": True, "vocab": vocab, "merges": []},
    }


LLAMA_DECODER = {
    "type": "Sequence",
    "decoders": [
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": " "},
        {"type": "ByteFallback"},
        {"type": "Fuse"},
        {"type": "Strip", "content": " ", "start": 1, "stop": 0},
    ],
}


def write(folder: Path, file: dict[str, Any]) -> Path:
    (folder / "tokenizer.json").write_text(json.dumps(file))
    return folder


@pytest.mark.parametrize("name", FOLDERS)
@given(data=st.data())
def test_the_bytes_of_any_tokens_decode_to_what_tokenizers_decodes(name: str, data: st.DataObject) -> None:
    tokenizer, vocabulary = TOKENIZERS[name], VOCABULARIES[name]
    ids = data.draw(st.lists(st.integers(0, vocabulary.vocab_size - 1)))
    text = b"".join(vocabulary.bytes_of(id_) for id_ in ids).decode(errors="replace")
    assert text == tokenizer.decode(ids, skip_special_tokens=True)


@pytest.mark.parametrize("name", FOLDERS)
def test_special_tokens_are_those_of_the_tokenizer_and_stand_for_nothing(name: str) -> None:
    added = TOKENIZERS[name].get_added_tokens_decoder()
    special = {id_ for id_, token in added.items() if token.special}
    vocabulary = VOCABULARIES[name]
    assert special
    assert {id_ for id_ in range(vocabulary.vocab_size) if vocabulary.is_special(id_)} == special
    assert all(vocabulary.bytes_of(id_) == b"" for id_ in special)


def test_ids_outside_the_tokenizer_stand_for_nothing() -> None:
    vocabulary = Vocabulary({0: b"a", 3: b"b"})
    assert vocabulary.vocab_size == 4
    assert [vocabulary.bytes_of(id_) for id_ in (-1, 0, 1, 3, 4, 10**9)] == [b"", b"a", b"", b"b", b"", b""]


def test_sentence_piece_bytes_decode_to_what_tokenizers_decodes_but_for_the_leading_space(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_folder(write(tmp_path, sentence_piece(LLAMA_DECODER)))
    tokenizer = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))

    @given(text=st.text())
    def check(text: str) -> None:
        ids = [BYTES + byte for byte in text.encode()]
        for tokens in (ids, [2, *ids, 3, 4, 5], [TOOL, 1, *ids]):
            got = b"".join(vocabulary.bytes_of(id_) for id_ in tokens).decode()
            assert got.removeprefix(" ") == tokenizer.decode(tokens).removeprefix(" ")

    check()


def test_sentence_piece_keeps_the_leading_space_and_added_tokens_literal(tmp_path: Path) -> None:
    vocabulary = Vocabulary.from_folder(write(tmp_path, sentence_piece(LLAMA_DECODER)))
    pieces = [vocabulary.bytes_of(id_) for id_ in (2, 3, 4, 5, 6, BYTES + 0xE2, TOOL)]
    assert pieces == [b" the", b"re", "é".encode(), b"", b"<0x", b"\xe2", "<tool> é".encode()]


def test_unigram_lists_its_tokens_in_order_and_metaspace_has_its_own_mark(tmp_path: Path) -> None:
    file = sentence_piece({"type": "Metaspace", "replacement": "_", "prepend_scheme": "always", "split": True})
    file["model"] = {"type": "Unigram", "unk_id": 0, "vocab": [["<unk>", 0.0], ["_a", -1.0], ["<0x41>", -2.0]]}
    vocabulary = Vocabulary.from_folder(write(tmp_path, file))
    assert [vocabulary.bytes_of(id_) for id_ in (1, 2)] == [b" a", b"<0x41>"]


@pytest.mark.parametrize(
    "decoder",
    [
        None,
        {"type": "WordPiece", "prefix": "##", "cleanup": True},
        {"type": "Sequence", "decoders": [{"type": "ByteFallback"}]},
        {"type": "Sequence", "decoders": [{"type": "ByteLevel"}, {"type": "ByteFallback"}]},
        {"type": "Replace", "pattern": {"Regex": "x+"}, "content": " "},
        {"type": "Replace", "pattern": {"String": "\u2581"}, "content": "-"},
        {"type": "Sequence", "decoders": [{"type": "Metaspace"}, {"type": "Strip", "content": " ", "stop": 1}]},
        {"type": "Sequence", "decoders": [{"type": "Metaspace"}, {"type": "Metaspace", "replacement": "_"}]},
    ],
)
def test_an_unknown_decoder_is_refused_at_start(tmp_path: Path, decoder: dict[str, Any]) -> None:
    write(tmp_path, sentence_piece(decoder))
    with pytest.raises(ModelFolderError, match="its decoder"):
        Vocabulary.from_folder(tmp_path)


@pytest.mark.parametrize("content", [None, "", "{}", '{"model": {"vocab": 3}}'])
def test_a_folder_without_a_tokenizer_is_refused_at_start(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "tokenizer.json").write_text(content)
    with pytest.raises(ModelFolderError, match="cannot be read as a tokenizer"):
        Vocabulary.from_folder(tmp_path)


@given(st.lists(st.sampled_from(["<s>", "<s>>", "<", "s>", "a", "</s>"]), max_size=12))
def test_a_text_is_split_at_the_longest_special_tokens_that_it_spells(pieces: list[str]) -> None:
    special = {1: "<s>", 2: "<s>>", 3: "</s>"}
    words = Vocabulary({0: b"a", **{id_: text.encode() for id_, text in special.items()}}, frozenset(special))
    text = "".join(pieces)
    ids = {spelling: id_ for id_, spelling in special.items()}
    expected = tuple(ids.get(part, part) for part in re.split("(<s>>|<s>|</s>)", text) if part)
    assert words.split(text) == expected


def test_a_text_too_long_to_be_split_or_without_special_tokens_is_one_part() -> None:
    words = Vocabulary({0: b"a", 1: b"<s>"}, frozenset({1}))
    assert words.split("<s>" * 1000) == ("<s>" * 1000,)
    assert words.split("") == ()
    assert Vocabulary({0: b"<s>"}).split("<s>") == ("<s>",)
