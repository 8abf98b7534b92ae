"""What holds where a request is silent: the model's own settings, or OpenAI's.

A model folder says them in generation_config.json (what the authors publish) and in `search` of genai_config.json (what
onnxruntime-genai goes by). The first of the two that speaks of sampling decides temperature, top_p, top_k and min_p
together; other settings are taken one by one. `do_sample` false is greedy, and in genai_config.json so is its absence:
what stands beside it is then not meant for requests that do ask for a temperature.

Values that no request may have either are left out with a warning. Knows no request.
"""

import logging
from collections.abc import Iterator, Mapping
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import msgspec

from server.bodies import ChatBody
from server.fields import declared
from server.model_files import read_json

LOGGER = logging.getLogger("paceline.server")

SAMPLING = ("temperature", "top_p", "top_k", "min_p")
OTHERS = {"repetition_penalty": "repetition_penalty", "max_new_tokens": "max_tokens"}
"""Settings beside those of sampling, by their names in the files."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Defaults:
    """A request's values where it gives none; `top_k` 0 is off, `max_tokens` None the rest of the context.

    `origin` is where they are from, in words.
    """

    temperature: float = 1.0
    top_p: float = 1.0
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    max_tokens: int | None = None
    origin: str = "OpenAI"

    @property
    def values(self) -> dict[str, float | int | None]:
        """The values, by their names in requests."""
        return {name: value for name, value in asdict(self).items() if name != "origin"}

    def __str__(self) -> str:
        """The temperature, and what else is not neutral."""
        told = {name: value for name, value in self.values.items() if value != getattr(OPENAI, name)}
        words = [f"{name} {value}" for name, value in ({"temperature": self.temperature} | told).items()]
        return f"{', '.join(words)} (from {self.origin})"


OPENAI = Defaults()


def model_defaults(folder: Path) -> Defaults:
    """What a model folder says; OpenAI's values for what it says nothing of.

    Raises:
        ModelFolderError: a file is there and is no JSON object.
    """
    found: dict[str, Any] = {}
    origins = []
    for origin, said, greedy in _sources(folder):
        own = _valid(said, origin)
        sampling = {name: own[name] for name in SAMPLING if name in own}
        others = {ours: own[ours] for ours in OTHERS.values() if ours in own}
        if greedy:
            sampling = {"temperature": 0.0}
        elif said.get("do_sample") is True:
            sampling.setdefault("temperature", OPENAI.temperature)
        if found.keys() & set(SAMPLING):
            sampling = {}
        others = {name: value for name, value in others.items() if name not in found}
        if sampling or any(value != getattr(OPENAI, name) for name, value in others.items()):
            origins.append(origin)
        found |= sampling | others
    return Defaults(**found, origin=" and ".join(origins)) if origins else OPENAI


def _sources(folder: Path) -> Iterator[tuple[str, Mapping[str, Any], bool]]:
    """What speaks, the first first: its name, what it says, and whether that is to be greedy."""
    published = read_json(folder / "generation_config.json")
    yield "generation_config.json", published, published.get("do_sample") is False
    search = read_json(folder / "genai_config.json").get("search")
    if isinstance(search, dict) and search:
        yield "search in genai_config.json", search, search.get("do_sample") is not True


def _valid(said: Mapping[str, Any], origin: str) -> dict[str, Any]:
    """The settings that a request could have as well, by their names in requests."""
    fields = declared(ChatBody)
    own: dict[str, Any] = {}
    for theirs, ours in (dict(zip(SAMPLING, SAMPLING, strict=True)) | OTHERS).items():
        value = said.get(theirs)
        if value is None or (theirs == "top_p" and value == 0):  # which is off to onnxruntime-genai
            continue
        try:
            own[ours] = fields[ours].decoder.decode(msgspec.json.encode(value))
        except msgspec.ValidationError:
            words = fields[ours].words
            LOGGER.warning("%s says %s %r: left out, since it must be %s", origin, theirs, value, words)
    if "top_k" in own:
        own["top_k"] = max(own["top_k"], 0)
    return own
