import json
from pathlib import Path
from typing import Any

import onnxruntime_genai as og
import pytest
from tokenizers import Tokenizer, pre_tokenizers

from scheduler.model.importing import BrokenSource, UnsupportedModel
from scheduler.model.importing.tokenizer_json import merges_from_scores, tokenizer_files
from tests.conftest import model_folder

TEXTS = [
    "Hello world",
    "  leading and trailing  ",
    "a  b   c    d",
    "12345 678 x1y22z333 100,000.50$",
    "   1 a  1\n1\n 2\t\t1\t2",
    "it's we'll IT'S don't 'S 'LL 'x",
    "tabs\tand\nnewlines\n\n\n  indented",
    "def f(x):\n    return x**2 # comment\n",
    "\r\nwindows\r\n",
    "Größe naïve café e\u0301",
    "Привет, мир 2024",
    "你好\uff0c世界123",
    "こんにちは 世界",
    "مرحبا بالعالم ١٢٣",
    "हिन्दी ४५",
    "😀👨\u200d👩\u200d👧\u200d👦🇫🇷 emoji\ufeff",
    "<|im_start|>user\nHi<|im_end|>\nx<|endoftext|>y <tool_call> z",
    '& <tag/> {"a": [1,2]} ...!!!???  \n \n',
    "a\u00a0b\u2003c\u3000d",
    "½ ² Ⅷ ㊙ 1½2",
    "",
    " ",
    "\n",
]


def byte_level(pre: str, **extra: object) -> dict[str, Any]:
    """GGUF's metadata for the byte-level tokenizer of the tiny folders."""
    content = json.loads((model_folder("llama-int4") / "tokenizer.json").read_text())["model"]
    tokens = sorted(content["vocab"], key=content["vocab"].__getitem__)
    return {
        "tokenizer.ggml.model": "gpt2",
        "tokenizer.ggml.pre": pre,
        "tokenizer.ggml.tokens": tokens,
        "tokenizer.ggml.token_type": [3, 3, 3, 4, 4, 4, 4, *[1] * (len(tokens) - 7)],
        "tokenizer.ggml.merges": [" ".join(pair) for pair in content["merges"]],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.padding_token_id": 0,
        **extra,
    }


def readers(metadata: dict[str, Any], folder: Path) -> tuple[Tokenizer, Any]:
    """The two that read tokenizer.json: tokenizers and onnxruntime-genai."""
    for name, text in tokenizer_files(metadata, 2048).items():
        (folder / name).write_text(text, encoding="utf-8")
    (folder / "genai_config.json").write_text((model_folder("llama-int4") / "genai_config.json").read_text())
    theirs = og.Tokenizer(str(folder))
    theirs.update_options(add_special_tokens="true")  # or it leaves the first token to the chat template
    return Tokenizer.from_file(str(folder / "tokenizer.json")), theirs


@pytest.mark.parametrize("pre", ["smollm", "gpt-2", "llama-bpe", "qwen2"])
def test_onnxruntime_genai_and_tokenizers_cut_every_text_alike(pre: str, tmp_path: Path) -> None:
    ours, theirs = readers(byte_level(pre), tmp_path)
    assert [list(theirs.encode(text)) for text in TEXTS] == [ours.encode(text).ids for text in TEXTS]
    assert [ours.decode(ours.encode(text).ids, skip_special_tokens=False) for text in TEXTS] == TEXTS


def test_smollms_digits_are_cut_as_its_authors_cut_them(tmp_path: Path) -> None:
    ours, _ = readers(byte_level("smollm"), tmp_path)
    original = Tokenizer.from_file(str(tmp_path / "tokenizer.json"))
    original.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(add_prefix_space=False)]
    )
    assert [ours.encode(text).ids for text in TEXTS] == [original.encode(text).ids for text in TEXTS]


def test_control_tokens_are_special_and_user_defined_ones_are_text(tmp_path: Path) -> None:
    ours, _ = readers(byte_level("gpt-2"), tmp_path)
    assert ours.encode("<|im_end|><tool_call>").ids == [2, 3]
    assert ours.decode([2, 3]) == "<tool_call>"


@pytest.mark.parametrize(("asked", "expected"), [(True, [1, 22]), (False, [22])])
def test_the_first_token_is_added_when_the_metadata_asks(asked: bool, expected: list[int], tmp_path: Path) -> None:
    ours, theirs = readers(byte_level("gpt-2", **{"tokenizer.ggml.add_bos_token": asked}), tmp_path)
    assert ours.encode("0").ids == expected == list(theirs.encode("0"))


def test_the_chat_template_is_carried_over(tmp_path: Path) -> None:
    template = "{% for m in messages %}<|im_start|>{{ m['content'] }}{% endfor %}"
    _, theirs = readers(byte_level("gpt-2", **{"tokenizer.chat_template": template}), tmp_path)
    rendered = theirs.apply_chat_template(json.dumps([{"role": "user", "content": "Hi"}]), add_generation_prompt=True)
    assert rendered == "<|im_start|>Hi"


PIECES = [
    "<unk>",
    "<s>",
    "</s>",
    *(f"<0x{byte:02X}>" for byte in range(256)),
    "▁",
    "a",
    "b",
    "c",
    "ab",
    "▁ab",
    "bc",
    "abc",
    "▁▁",
]


def sentence_piece(**extra: object) -> dict[str, Any]:
    scores = [0.0] * 259 + [-10.0, -11.0, -12.0, -13.0, -2.0, -3.0, -1.0, -4.0, -5.0]
    return {
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": PIECES,
        "tokenizer.ggml.scores": scores,
        "tokenizer.ggml.token_type": [2, 3, 3, *[6] * 256, *[1] * 9],
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
        "tokenizer.ggml.unknown_token_id": 0,
        **extra,
    }


def test_sentencepiece_joins_the_best_scored_neighbours_first(tmp_path: Path) -> None:
    ours, theirs = readers(sentence_piece(), tmp_path)
    assert ours.encode("abcab").tokens == ["<s>", "▁", "abc", "ab"]  # bc scores above ab and ▁ab
    assert ours.encode("ab ab").tokens == ["<s>", "▁ab", "▁ab"]
    assert ours.encode("é").tokens == ["<s>", "▁", "<0xC3>", "<0xA9>"]
    assert ours.encode("b   c").tokens == ["<s>", "▁", "b", "▁▁", "▁", "c"]
    for text in ("abc", "ab ab", "é", "b   c", "a  ab", "</s>ab"):
        assert list(theirs.encode(text)) == ours.encode(text).ids
    assert ours.decode(ours.encode("é ab  c").ids) == "é ab  c"


def test_merges_are_rebuilt_from_scores_best_first() -> None:
    pieces, scores = ["a", "b", "c", "ab", "bc", "abc"], [0.0, 0.0, 0.0, -2.0, -1.0, -3.0]
    assert merges_from_scores(pieces, scores) == [("b", "c"), ("a", "b"), ("a", "bc"), ("ab", "c")]


@pytest.mark.parametrize(
    ("metadata", "error", "message"),
    [
        (
            {"tokenizer.ggml.model": "bert", "tokenizer.ggml.tokens": []},
            UnsupportedModel,
            "tokenizer.ggml.model is bert",
        ),
        ({}, BrokenSource, "carries no tokenizer"),
        (sentence_piece(**{"tokenizer.ggml.scores": [1.0]}), BrokenSource, "1 entries, not 268"),
    ],
)
def test_a_tokenizer_that_is_not_understood_is_refused(
    metadata: dict[str, Any], error: type[Exception], message: str
) -> None:
    with pytest.raises(error, match=message):
        tokenizer_files(metadata, 128)


def test_an_unknown_way_to_cut_text_is_refused_by_name() -> None:
    with pytest.raises(UnsupportedModel, match=r"tokenizer\.ggml\.pre is tekken"):
        tokenizer_files(byte_level("tekken"), 128)
