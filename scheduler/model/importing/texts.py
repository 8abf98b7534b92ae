"""The texts that quantisation is judged by, as a model's own tokens.

They were written for this purpose and ship with the package. Knows tokenizer.json and nothing else of models.
"""

from importlib.resources import files
from pathlib import Path

from tokenizers import Tokenizer

from scheduler.model.importing.errors import BrokenSource

HELD_OUT = ("technical", "literary")


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
