"""What each token id stands for, as bytes: the generated text is their concatenation, decoded as UTF-8.

Read from `tokenizer.json`, for the two families of decoders in use:

    ByteLevel       a token is spelled in GPT-2's alphabet, one printable character for each byte
    SentencePiece   Metaspace or Replace("▁", " "), with ByteFallback (`<0xE2>` is that byte), Fuse and Strip

The leading space that SentencePiece's Strip takes off a whole text is kept: generated text continues a prompt.
Where a ByteFallback run is not UTF-8, `tokenizers` writes one U+FFFD for each byte and the bytes here decode to one
for each broken character, as ByteLevel does.

Knows no text: cutting and holding back is `server.text`'s.
"""

import re
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import Any

import msgspec

from scheduler.errors import ModelFolderError

SPACE_MARK = "\u2581"  # SentencePiece's visible space
BYTE_TOKEN = re.compile(r"<0x([0-9A-Fa-f]{2})>")
LONGEST_SPLIT = 256
SENTENCE_PIECE_PARTS = {"Metaspace", "Replace", "ByteFallback", "Fuse", "Strip"}


class AddedToken(msgspec.Struct):
    """A token beside the model's own: its content is literal, and it is shown unless special."""

    id: int
    content: str
    special: bool = False


class TokenModel(msgspec.Struct):
    """The tokenizer's model: BPE lists its tokens by name, Unigram in order with a score each."""

    vocab: dict[str, int] | list[tuple[str, float]]

    def items(self) -> Iterator[tuple[str, int]]:
        """Each token's spelling and id."""
        if isinstance(self.vocab, dict):
            yield from self.vocab.items()
        else:
            yield from ((token, id_) for id_, (token, _) in enumerate(self.vocab))


class TokenizerFile(msgspec.Struct):
    """The parts of tokenizer.json that say what an id stands for."""

    model: TokenModel
    decoder: dict[str, Any] | None = None
    added_tokens: list[AddedToken] = []


class Vocabulary:
    """Token id -> bytes. Ids that no token has (a model's vocabulary is often padded) stand for nothing."""

    def __init__(self, pieces: dict[int, bytes], special: frozenset[int] = frozenset()) -> None:
        self.vocab_size = max((*pieces, *special), default=-1) + 1
        self._spellings = [pieces.get(id_, b"") for id_ in range(self.vocab_size)]
        self._pieces = [b"" if id_ in special else piece for id_, piece in enumerate(self._spellings)]
        self._special = special
        self._ids = {self._spellings[id_].decode(errors="replace"): id_ for id_ in special if self._spellings[id_]}
        self._lengths: dict[str, list[int]] = {}  # of the special tokens that begin with a character, longest first
        for length, first in sorted({(len(spelling), spelling[0]) for spelling in self._ids}, reverse=True):
            self._lengths.setdefault(first, []).append(length)
        self._split = lru_cache(maxsize=64)(lambda text: tuple(self._parts(text)))  # the choices of a reply ask alike

    @classmethod
    def from_folder(cls, folder: Path) -> "Vocabulary":
        """Read a model folder's tokenizer.json.

        Raises:
            ModelFolderError: it is missing, is not a tokenizer, or has a decoder of a family not known here.
        """
        path = folder / "tokenizer.json"
        try:
            file = msgspec.json.decode(path.read_bytes(), type=TokenizerFile)
        except (OSError, msgspec.MsgspecError) as error:
            raise ModelFolderError(f"{path} cannot be read as a tokenizer ({error}): export the model anew") from error
        try:
            spell = _speller(file.decoder)
        except (ValueError, KeyError, TypeError) as error:
            reason = error if type(error) is ValueError else f"its decoder is not understood ({error!r})"
            message = f"{path} cannot be used: {reason}"
            raise ModelFolderError(f"{message}. Serve a model whose tokenizer is of one of these families") from error
        pieces = {id_: spell(token) for token, id_ in file.model.items()}
        pieces |= {token.id: token.content.encode() for token in file.added_tokens}
        return cls(pieces, frozenset(token.id for token in file.added_tokens if token.special))

    def bytes_of(self, token: int) -> bytes:
        """What the token adds to the text; nothing for a special token and for an id that no token has."""
        return self._pieces[token] if 0 <= token < self.vocab_size else b""

    def spelling_of(self, token: int) -> bytes:
        """How the token is written where it is spoken of, special or not; nothing for an id that no token has."""
        return self._spellings[token] if 0 <= token < self.vocab_size else b""

    def split(self, text: str) -> tuple[str | int, ...]:
        """A text as it would be read: the special tokens that it spells as ids, what is between them as it is.

        A text of more than LONGEST_SPLIT characters is one part: the work is bounded, whoever sends it.
        """
        return self._split(text) if self._special and len(text) <= LONGEST_SPLIT else (text,)

    def _parts(self, text: str) -> Iterator[str | int]:
        begin = at = 0
        while at < len(text):
            spelling = self._special_at(text, at)
            if spelling:
                yield from filter(None, (text[begin:at],))
                yield self._ids[spelling]
                begin = at + len(spelling)
            at += len(spelling) or 1
        yield from filter(None, (text[begin:],))

    def _special_at(self, text: str, at: int) -> str:
        """The longest spelling of a special token there; empty where there is none."""
        found = (text[at : at + length] for length in self._lengths.get(text[at], ()))
        return next((spelling for spelling in found if spelling in self._ids), "")

    def is_special(self, token: int) -> bool:
        """Whether the token steers the model and is not part of the text."""
        return token in self._special


class _ByteLevel:
    """GPT-2's alphabet read backwards: printable Latin-1 is itself, the other bytes follow from U+0100 on."""

    def __init__(self) -> None:
        printable = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
        others = [byte for byte in range(256) if byte not in printable]
        self._bytes = {chr(byte): byte for byte in printable}
        self._bytes |= {chr(0x100 + i): byte for i, byte in enumerate(others)}

    def __call__(self, token: str) -> bytes:
        try:
            return bytes(self._bytes[char] for char in token)
        except KeyError:  # not spelled in the alphabet: a literal, as `tokenizers` takes it
            return token.encode()


class _SentencePiece:
    """A visible space is a space; `<0xE2>` is a byte where the tokenizer falls back to bytes."""

    def __init__(self, mark: str, byte_fallback: bool) -> None:
        self._mark = mark
        self._byte_fallback = byte_fallback

    def __call__(self, token: str) -> bytes:
        if self._byte_fallback and (match := BYTE_TOKEN.fullmatch(token)):
            return bytes([int(match[1], 16)])
        return token.replace(self._mark, " ").encode()


def _speller(decoder: dict[str, Any] | None) -> _ByteLevel | _SentencePiece:
    parts = _parts(decoder)
    kinds = {part["type"] for part in parts}
    if "ByteLevel" in kinds and kinds <= {"ByteLevel", "Fuse"}:
        return _ByteLevel()
    if kinds & {"Metaspace", "Replace"} and kinds <= SENTENCE_PIECE_PARTS:
        return _SentencePiece(_mark(parts), "ByteFallback" in kinds)
    named = " + ".join(part["type"] for part in parts) or "none"
    raise ValueError(f"its decoder ({named}) is neither ByteLevel nor of the SentencePiece family")


def _parts(decoder: dict[str, Any] | None) -> list[dict[str, Any]]:
    if decoder is None:
        return []
    if decoder.get("type") == "Sequence":
        return [part for inner in decoder["decoders"] for part in _parts(inner)]
    return [decoder]


def _mark(parts: list[dict[str, Any]]) -> str:
    """The character that stands for a space; any other replacement, or a Strip inside the text, is not known here."""
    marks = {part.get("replacement", SPACE_MARK) for part in parts if part["type"] == "Metaspace"}
    for part in parts:
        if part["type"] == "Replace":
            if part.get("content") != " " or "String" not in part["pattern"]:
                raise ValueError(f"its decoder replaces {part['pattern']} by {part.get('content')!r}")
            marks.add(part["pattern"]["String"])
        elif part["type"] == "Strip" and (part.get("content"), part.get("stop")) != (" ", 0):
            raise ValueError("its decoder strips more than the leading space")
    if len(marks) != 1:
        raise ValueError(f"its decoder has several marks for a space: {sorted(marks)}")
    return str(marks.pop())
