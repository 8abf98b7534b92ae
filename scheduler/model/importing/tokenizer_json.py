"""GGUF's tokenizer metadata as tokenizer.json, tokenizer_config.json and chat_template.jinja.

The files are for two readers, `tokenizers` and onnxruntime-genai, which must cut every text alike. Where they differ on
a form, the table below uses another form that both read alike. Knows metadata and text; nothing of models.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from tokenizers import AddedToken, Regex, Tokenizer, decoders, models, normalizers, pre_tokenizers, processors

from scheduler.model.importing.errors import BrokenSource, ImportFailed, UnsupportedModel

_INSTEAD = "Try an export by onnxruntime-genai's builder instead"
_CONTROL, _USER_DEFINED = 3, 4  # token types of llama.cpp
_SPACE = "\N{LOWER ONE EIGHTH BLOCK}"

_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
# onnxruntime-genai knows this expression by heart, and cuts "  \n  x" one space earlier than it says; so it does in
# every folder of Llama 3 and Qwen.
_LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*"
    r"|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_QWEN2 = _LLAMA3.replace(r"\p{N}{1,3}", r"\p{N}")

# By tokenizer.ggml.pre: the expressions by which text is cut, one after the other. Digits are cut by an expression of
# their own because onnxruntime-genai's `Digits` leaves white space before them to the next piece, and because its
# `ByteLevel(use_regex)` after a `Split` forgets the look-ahead of `\s+(?!\S)`.
_CUTS: dict[str, tuple[str, ...]] = {
    "gpt-2": (_GPT2,),
    "gpt2": (_GPT2,),
    "smollm": (r"\p{N}", _GPT2),
    "starcoder": (r"\p{N}", _GPT2),
    "llama-bpe": (_LLAMA3,),
    "llama3": (_LLAMA3,),
    "llama-v3": (_LLAMA3,),
    "qwen2": (_QWEN2,),
}
_WHOLE_WORDS_FIRST = {"llama-bpe", "llama3", "llama-v3"}  # a piece that is a token is not built from merges


def tokenizer_files(metadata: Mapping[str, Any], context: int) -> dict[str, str]:
    """Make the tokenizer's files, content by name.

    Args:
        metadata: The GGUF file's, by key.
        context: Tokens the model can attend to.

    Raises:
        UnsupportedModel: The tokenizer is of a kind that is not understood; names it.
        BrokenSource: Metadata is missing.

    """
    vocabulary = _Vocabulary.read(metadata)
    if vocabulary.model not in _KINDS:
        message = f"tokenizer.ggml.model is {vocabulary.model}, where {', '.join(_KINDS)} are known"
        raise UnsupportedModel(f"{message}. {_INSTEAD}")
    try:
        tokenizer = _KINDS[vocabulary.model](vocabulary)
    except ImportFailed:
        raise
    except Exception as error:  # `tokenizers` raises no class of its own
        raise BrokenSource(f"the file's tokenizer does not add up ({error}): download it anew") from error
    _add_tokens(tokenizer, vocabulary)
    _add_bos(tokenizer, vocabulary)
    files = {
        "tokenizer.json": tokenizer.to_str(pretty=False),
        "tokenizer_config.json": json.dumps(_config(vocabulary, context), indent=2, ensure_ascii=False) + "\n",
    }
    if template := vocabulary.get("tokenizer.chat_template"):
        files["chat_template.jinja"] = template
    return files


@dataclass(frozen=True, slots=True)
class _Vocabulary:
    """The tokenizer's metadata: tokens in order of id, their types, and where to look for the rest."""

    model: str
    tokens: list[str]
    types: list[int]
    metadata: Mapping[str, Any]

    @classmethod
    def read(cls, metadata: Mapping[str, Any]) -> "_Vocabulary":
        try:
            model, tokens = metadata["tokenizer.ggml.model"], metadata["tokenizer.ggml.tokens"]
        except KeyError as error:
            raise BrokenSource(f"the file has no {error.args[0]}: it carries no tokenizer, take another one") from None
        return cls(model, tokens, metadata.get("tokenizer.ggml.token_type", [1] * len(tokens)), metadata)

    def get(self, key: str, default: Any = None) -> Any:  # noqa: ANN401 - metadata is of any type
        return self.metadata.get(key, default)

    def special(self, name: str) -> str | None:
        """Return the token that plays a role: bos, eos, unknown, padding."""
        number = self.get(f"tokenizer.ggml.{name}_token_id")
        return self.tokens[number] if number is not None and number < len(self.tokens) else None

    def ids(self) -> dict[str, int]:
        return {token: number for number, token in enumerate(self.tokens)}


def _byte_level(vocabulary: _Vocabulary) -> Tokenizer:
    """BPE over bytes written as printable characters, as GPT-2 began it."""
    cut = vocabulary.get("tokenizer.ggml.pre", "default")
    if cut not in _CUTS:
        message = f"tokenizer.ggml.pre is {cut}, where {', '.join(sorted(_CUTS))} are known"
        raise UnsupportedModel(f"{message}. {_INSTEAD}")
    merges = [tuple(merge.split(" ", 1)) for merge in vocabulary.get("tokenizer.ggml.merges", [])]
    model = models.BPE(vocab=vocabulary.ids(), merges=merges, ignore_merges=cut in _WHOLE_WORDS_FIRST)
    tokenizer = Tokenizer(model)
    splits = [pre_tokenizers.Split(Regex(expression), "isolated") for expression in _CUTS[cut]]
    tokenizer.pre_tokenizer = pre_tokenizers.Sequence(
        [*splits, pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False)]
    )
    tokenizer.decoder = decoders.ByteLevel()
    return tokenizer


def _sentence_piece(vocabulary: _Vocabulary) -> Tokenizer:
    """SentencePiece's BPE: spaces are a visible character, what has no token falls back to its bytes."""
    tokenizer = Tokenizer(
        models.BPE(
            vocab=vocabulary.ids(),
            merges=merges_from_scores(vocabulary.tokens, vocabulary.get("tokenizer.ggml.scores", [])),
            unk_token=vocabulary.special("unknown") or vocabulary.tokens[0],
            fuse_unk=True,
            byte_fallback=True,
        )
    )
    prefix = vocabulary.get("tokenizer.ggml.add_space_prefix", True)
    steps: list[normalizers.Normalizer] = [normalizers.Prepend(_SPACE)] if prefix else []
    tokenizer.normalizer = normalizers.Sequence([*steps, normalizers.Replace(" ", _SPACE)])
    tail = [decoders.Strip(" ", 1, 0)] if prefix else []
    tokenizer.decoder = decoders.Sequence(
        [decoders.Replace(_SPACE, " "), decoders.ByteFallback(), decoders.Fuse(), *tail]
    )
    return tokenizer


_KINDS = {"gpt2": _byte_level, "llama": _sentence_piece}  # by tokenizer.ggml.model


# By tokenizer.ggml.model. Under the name of Llama's class, onnxruntime-genai cuts runs of spaces before the last one,
# which SentencePiece does not; under the name of Gemma's, it agrees with SentencePiece.
_CLASSES = {"gpt2": "PreTrainedTokenizerFast", "llama": "GemmaTokenizer"}


def merges_from_scores(tokens: list[str], scores: list[float]) -> list[tuple[str, str]]:
    """Rebuild BPE's merges, best first: SentencePiece joins the two neighbours whose union scores highest.

    Every way to make a token of two others is a merge; its rank is the token's score.
    """
    if len(scores) != len(tokens):
        raise BrokenSource(f"tokenizer.ggml.scores has {len(scores)} entries, not {len(tokens)}: take another file")
    ids = {token: number for number, token in enumerate(tokens)}
    ranked = []
    for token, score in zip(tokens, scores, strict=True):
        pairs = [(token[:cut], token[cut:]) for cut in range(1, len(token))]
        known = [(ids[left], ids[right]) for left, right in pairs if left in ids and right in ids]
        ranked += [(-score, pair) for pair in sorted(known)]
    return [(tokens[left], tokens[right]) for _, (left, right) in sorted(ranked, key=lambda entry: entry[0])]


def _add_tokens(tokenizer: Tokenizer, vocabulary: _Vocabulary) -> None:
    """Name the tokens that are found in text before it is cut; control tokens are special."""
    typed = zip(vocabulary.tokens, vocabulary.types, strict=True)
    found = [(token, kind) for token, kind in typed if kind in (_CONTROL, _USER_DEFINED)]
    for token, kind in found:
        added = AddedToken(token, normalized=False, special=kind == _CONTROL)
        if kind == _CONTROL:
            tokenizer.add_special_tokens([added])
        else:
            tokenizer.add_tokens([added])


def _add_bos(tokenizer: Tokenizer, vocabulary: _Vocabulary) -> None:
    """Put the first token before every text, where the metadata says so; SentencePiece's models do by default."""
    bos = vocabulary.special("bos")
    if bos is None or not vocabulary.get("tokenizer.ggml.add_bos_token", vocabulary.model == "llama"):
        return
    tokenizer.post_processor = processors.TemplateProcessing(
        single=f"{bos} $A",
        pair=f"{bos} $A {bos}:1 $B:1",
        special_tokens=[(bos, vocabulary.get("tokenizer.ggml.bos_token_id"))],
    )


def _config(vocabulary: _Vocabulary, context: int) -> dict[str, Any]:
    roles = {"bos": "bos", "eos": "eos", "unk": "unknown", "pad": "padding"}
    named = {f"{role}_token": vocabulary.special(name) for role, name in roles.items()}
    return {
        "add_bos_token": bool(vocabulary.get("tokenizer.ggml.add_bos_token", vocabulary.model == "llama")),
        **{role: token for role, token in named.items() if token is not None},
        "clean_up_tokenization_spaces": False,
        "model_max_length": context,
        "tokenizer_class": _CLASSES[vocabulary.model],
    }
