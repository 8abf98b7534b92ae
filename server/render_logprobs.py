"""Scores to OpenAI's three shapes of logprobs, and vLLM's for prompts. Knows no asyncio and makes no decision.

There may be very many, hence each shape is work that can be interrupted, and its lists are JSON as soon as made.
"""

from collections.abc import Iterable

from msgspec import Raw, Struct

from server.json_list import JsonList
from server.scores import Score, Spelled
from server.stretches import Work, batches


class CompletionLogprobs(Struct, frozen=True):
    """A completion's, in four lists of the same length; the first token of a prompt has null.

    `top_logprobs` holds the chosen token as well, as OpenAI's does. Tokens that look alike share an entry, and the
    likelier one's value stands.
    """

    tokens: Raw
    token_logprobs: Raw
    top_logprobs: Raw
    text_offset: Raw


class _Token(Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]


class _ChatToken(Struct, frozen=True):
    token: str
    logprob: float
    bytes: list[int]
    top_logprobs: list[_Token]


class ChatLogprobs(Struct, frozen=True):
    """A chat's: for each token itself and the likeliest ones, as text and as bytes."""

    content: Raw
    refusal: None = None


class _PromptToken(Struct, frozen=True):
    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = Raw
"""vLLM's: for each token of the prompt an object from token ids; null for the first."""

BATCH = 16
"""Scores that are rendered without an interruption; each may tell of twenty tokens more."""


def completion_logprobs(scores: Iterable[Score]) -> Work[CompletionLogprobs]:
    """The scores as `/v1/completions` shows them."""
    tokens, logprobs, tops, offsets = JsonList(), JsonList(), JsonList(), JsonList()
    for batch in batches(scores, BATCH):
        tokens.add([score.chosen.text for score in batch])
        logprobs.add([score.chosen.logprob for score in batch])
        tops.add([_top(score) for score in batch])
        offsets.add([score.offset for score in batch])
        yield
    return CompletionLogprobs(tokens.whole(), logprobs.whole(), tops.whole(), offsets.whole())


def chat_logprobs(scores: Iterable[Score]) -> Work[ChatLogprobs]:
    """The scores as `/v1/chat/completions` shows them."""
    content = JsonList()
    for batch in batches(scores, BATCH):
        content.add(
            [
                _ChatToken(s.chosen.text, _known(s.chosen), list(s.chosen.spelling), [_token(top) for top in s.top])
                for s in batch
            ]
        )
        yield
    return ChatLogprobs(content.whole())


def prompt_logprobs(scores: Iterable[Score]) -> Work[PromptLogprobs]:
    """The scores as vLLM shows a prompt's."""
    told = JsonList()
    for batch in batches(scores, BATCH):
        told.add([_of_prompt(score) for score in batch])
        yield
    return told.whole()


def _of_prompt(score: Score) -> dict[str, _PromptToken] | None:
    if score.chosen.logprob is None:
        return None
    return {str(s.token): _PromptToken(_known(s), s.rank, s.text) for s in (score.chosen, *score.top)}


def _top(score: Score) -> dict[str, float] | None:
    if score.chosen.logprob is None:
        return None
    found: dict[str, float] = {}
    for spelled in (*score.top, score.chosen):
        found.setdefault(spelled.text, _known(spelled))
    return found


def _token(spelled: Spelled) -> _Token:
    return _Token(spelled.text, _known(spelled), list(spelled.spelling))


def _known(spelled: Spelled) -> float:
    assert spelled.logprob is not None, "only the first token of a prompt has no logprob"
    return spelled.logprob
