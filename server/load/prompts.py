"""What is asked: endless bodies of requests, from a file or made up. Knows no sockets.

Made-up prompts are random, so that no server's prefix cache helps, but for a shared beginning where one is wanted. As
token ids they are exactly as long as asked for, with no tokenizer; as text they are short common words, about one
token each, and `words_per_token` corrects for the server's vocabulary.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from itertools import cycle
from pathlib import Path
from typing import Any, Literal

import msgspec
import numpy as np

from server.load.lengths import Lengths

Form = Literal["ids", "text", "chat"]
WORDS = tuple(
    re.findall(
        r"\w+",
        "time year people way day man thing woman life child world school state family student group country problem "
        "hand part place case week company system program question work government number night point home water room "
        "mother area money story fact month lot right study book eye job word business issue side kind head house "
        "service friend father power hour game line end member law car city community name president team minute idea "
        "body information back parent face others level office door health person art war history party result change "
        "morning reason research girl guy moment air teacher force education",
    )
)


@dataclass(frozen=True, slots=True)
class Ask:
    """One request to be sent.

    Attributes:
        path: where to.
        body: as JSON.
    """

    path: str
    body: bytes


@dataclass(frozen=True, slots=True)
class Wanted:
    """What made-up requests are like.

    Attributes:
        form: token ids or text for completions, or a chat's message.
        prompt: tokens of a prompt, without the shared beginning.
        answer: max_tokens.
        shared: tokens that all prompts begin with.
        ids: token ids are drawn from [low, high).
        words_per_token: how many of WORDS make a token.
        fields: further fields of every body.
        seed: the same seed asks the same.
    """

    form: Form
    prompt: Lengths
    answer: Lengths
    shared: int
    ids: tuple[int, int]
    words_per_token: float
    fields: Mapping[str, Any]
    seed: int


def made_up(wanted: Wanted) -> Iterator[Ask]:
    """Requests without an end."""
    random = np.random.Generator(np.random.PCG64(wanted.seed))
    make = _ids(wanted.ids) if wanted.form == "ids" else _text(wanted.words_per_token)
    shared = make(random, wanted.shared) if wanted.shared else None
    while True:
        own = make(random, wanted.prompt.sample(random))
        prompt = own if shared is None else shared + own if isinstance(shared, list) else f"{shared} {own}"
        yield _ask(prompt, {**wanted.fields, "max_tokens": wanted.answer.sample(random)}, chat=wanted.form == "chat")


def from_file(file: Path, form: Form, answer: Lengths, fields: Mapping[str, Any], seed: int) -> Iterator[Ask]:
    """The requests of a file, over and over.

    A line is a prompt, or a JSON object with `prompt` or `messages` and any further field of a request; raises
    ValueError where the file holds nothing.
    """
    random = np.random.Generator(np.random.PCG64(seed))
    lines = [line for line in file.read_text(encoding="utf-8").splitlines() if line.strip()]
    if not lines:
        raise ValueError(f"{file} holds no prompts")
    for line in cycle(lines):
        given = msgspec.json.decode(line) if line.startswith("{") else {"prompt": line}
        given = {**fields, "max_tokens": answer.sample(random), **given}
        if "messages" in given:
            yield Ask("/v1/chat/completions", msgspec.json.encode(given))
        else:
            yield _ask(given.pop("prompt"), given, chat=form == "chat")


def _ask(prompt: object, fields: Mapping[str, Any], *, chat: bool) -> Ask:
    if chat:
        message = {"role": "user", "content": prompt}
        return Ask("/v1/chat/completions", msgspec.json.encode({**fields, "messages": [message]}))
    return Ask("/v1/completions", msgspec.json.encode({**fields, "prompt": prompt}))


def _ids(bounds: tuple[int, int]) -> Callable[[np.random.Generator, int], Any]:
    return lambda random, count: random.integers(*bounds, count).tolist()


def _text(words_per_token: float) -> Callable[[np.random.Generator, int], Any]:
    def make(random: np.random.Generator, count: int) -> str:
        return " ".join(random.choice(WORDS, max(1, round(count * words_per_token))))

    return make
