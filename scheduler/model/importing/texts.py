"""The texts that quantisation is calibrated on and judged by, as a model's own tokens.

All were written for this purpose and ship with the package. `calibration.txt` has something of everything that models
are asked for: prose, code, chats, tables, many languages. `technical.txt` and `literary.txt` are held out: they share
no sentence with it. Knows tokenizer.json and nothing else of models.
"""

from importlib.resources import files
from pathlib import Path

from tokenizers import Tokenizer

from scheduler.model.importing.errors import BrokenSource

PIECE = 512
"""Tokens of a piece of the calibration text, at the most."""

HELD_OUT = ("technical", "literary")


def calibration_tokens(folder: Path) -> list[list[int]]:
    """Cut the calibration text into pieces of at most PIECE tokens, each begun as the model's texts begin.

    Raises:
        BrokenSource: The folder has no tokenizer.json that can be read.

    """
    first, tokens = _encode(_tokenizer(folder), "calibration")
    size = PIECE - len(first)
    return [first + tokens[start : start + size] for start in range(0, len(tokens), size)]


def held_out(folder: Path) -> dict[str, list[int]]:
    """Give the held-out texts by name, each whole.

    Raises:
        BrokenSource: The folder has no tokenizer.json that can be read.

    """
    tokenizer = _tokenizer(folder)
    return {name: [*first, *tokens] for name in HELD_OUT for first, tokens in [_encode(tokenizer, name)]}


def read_text(name: str) -> str:
    """Read one of the texts that ship with the package."""
    return (files(__package__) / "texts" / f"{name}.txt").read_text(encoding="utf-8")


def _tokenizer(folder: Path) -> Tokenizer:
    path = folder / "tokenizer.json"
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises nothing narrower
        raise BrokenSource(f"{path} cannot be read ({error}): export the model with its tokenizer") from error


def _encode(tokenizer: Tokenizer, name: str) -> tuple[list[int], list[int]]:
    """Give what the tokenizer puts before a text, and the text's own tokens; what it puts behind is left off."""
    encoding = tokenizer.encode(read_text(name))
    added: list[int] = encoding.special_tokens_mask
    begin, end = added.index(0), len(added) - added[::-1].index(0)
    return encoding.ids[:begin], encoding.ids[begin:end]
