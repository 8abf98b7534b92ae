import pytest
from hypothesis import given
from hypothesis import strategies as st
from tokenizers import Tokenizer

from server.encoder import GLANCE, Encoder
from server.errors import ContextLengthExceeded
from tests.conftest import model_folder

CONTEXT = 32
WORDS = st.lists(st.sampled_from(["a", " ", "the", " class", "\n\n", "é", "🙂", "    ", "self.", "1234"]), max_size=400)


@pytest.mark.parametrize("name", ["llama-int4", "gemma2-int4", "qwen2-int4"])
@given(words=WORDS, times=st.integers(1, 20))
def test_a_text_fits_exactly_where_all_its_tokens_do(name: str, words: list[str], times: int) -> None:
    tokenizer = Tokenizer.from_file(str(model_folder(name) / "tokenizer.json"))
    tokenizer.no_truncation()
    text = "".join(words) * times
    ids = tokenizer.encode(text, add_special_tokens=False).ids
    encoder = Encoder(tokenizer, CONTEXT)
    if len(ids) < CONTEXT:
        assert encoder.fitting(text, "prompt", special=False).ids == ids
    else:
        with pytest.raises(ContextLengthExceeded):
            encoder.fitting(text, "prompt", special=False)


def test_a_long_text_is_judged_by_its_beginning() -> None:
    tokenizer = Tokenizer.from_file(str(model_folder("llama-int4") / "tokenizer.json"))
    encoder = Encoder(tokenizer, CONTEXT)
    with pytest.raises(ContextLengthExceeded, match="at least"):
        encoder.fitting("a b " * GLANCE * CONTEXT, "prompt", special=False)
    with pytest.raises(ContextLengthExceeded, match=f"The prompt has {CONTEXT} tokens"):
        encoder.fitting("".join(["a"] + [" a"] * (CONTEXT - 1)), "prompt", special=False)
