"""What is told of the model and of tokens: the bodies of `/v1/models` and `/tokenize`. Knows no asyncio."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec
from msgspec import Raw

from server.defaults import OPENAI, Defaults
from server.json_list import JsonList
from server.stretches import Work, batches

BATCH = 1000
"""Tokens that are told of without an interruption."""


@dataclass(frozen=True, slots=True)
class ModelCard:
    """A served model, as `/v1/models` shows it; `defaults` hold where a request is silent."""

    id: str
    created: int
    max_model_len: int
    defaults: Defaults = OPENAI
    owned_by: str = "paceline"


def model_card(card: ModelCard) -> bytes:
    """The body of `/v1/models/{id}`."""
    return msgspec.json.encode(_card(card))


def model_list(cards: Sequence[ModelCard]) -> bytes:
    """The body of `/v1/models`."""
    return msgspec.json.encode({"object": "list", "data": [_card(card) for card in cards]})


def tokenized(tokens: Sequence[int], spelled: Iterable[str] | None, context: int) -> Work[bytes]:
    """The body of `/tokenize`, in vLLM's shape."""
    ids = yield from _listed(tokens)
    strings = None if spelled is None else (yield from _listed(spelled))
    return msgspec.json.encode({"count": len(tokens), "max_model_len": context, "tokens": ids, "token_strs": strings})


def _listed(items: Iterable[object]) -> Work[Raw]:
    listed = JsonList()
    for batch in batches(items, BATCH):
        listed.add(batch)
        yield
    return listed.whole()


def _card(card: ModelCard) -> dict[str, Any]:
    return {
        "id": card.id,
        "object": "model",
        "created": card.created,
        "owned_by": card.owned_by,
        "max_model_len": card.max_model_len,
        "generation_config": {**card.defaults.values, "origin": card.defaults.origin},
    }
