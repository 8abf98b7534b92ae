"""What is told of the model and of tokens: the bodies of `/v1/models` and `/tokenize`. Knows no asyncio."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from server.defaults import OPENAI, Defaults


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


def tokenized(tokens: Sequence[int], spelled: Sequence[str] | None, context: int) -> bytes:
    """The body of `/tokenize`, in vLLM's shape."""
    return msgspec.json.encode(
        {"count": len(tokens), "max_model_len": context, "tokens": tokens, "token_strs": spelled}
    )


def _card(card: ModelCard) -> dict[str, Any]:
    return {
        "id": card.id,
        "object": "model",
        "created": card.created,
        "owned_by": card.owned_by,
        "max_model_len": card.max_model_len,
        "generation_config": {**card.defaults.values, "origin": card.defaults.origin},
    }
