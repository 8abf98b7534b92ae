"""Scores to OpenAI's three shapes of logprobs, and vLLM's for prompts. Knows no asyncio and makes no decision."""

from collections.abc import Sequence

from msgspec import UNSET, Struct, UnsetType

from server.scores import Score, Spelled


class CompletionLogprobs(Struct, frozen=True):
    """A completion's, in four lists of the same length; the first token of a prompt has null.

    `top_logprobs` holds the chosen token as well, as OpenAI's does. Tokens that look alike share an entry, and the
    likelier one's value stands.
    """

    tokens: list[str]
    token_logprobs: list[float | None]
    top_logprobs: list[dict[str, float] | None]
    text_offset: list[int]


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
    """A chat's."""

    content: list[_ChatToken]
    refusal: None = None


class _PromptToken(Struct, frozen=True):
    logprob: float
    rank: int
    decoded_token: str


PromptLogprobs = list[dict[str, _PromptToken] | None]
"""vLLM's: for each token of the prompt an object from token ids; null for the first."""


def completion_logprobs(scores: Sequence[Score]) -> CompletionLogprobs:
    """The scores as `/v1/completions` shows them."""
    return CompletionLogprobs(
        [score.chosen.text for score in scores],
        [score.chosen.logprob for score in scores],
        [_top(score) for score in scores],
        [score.offset for score in scores],
    )


def chat_logprobs(scores: Sequence[Score]) -> ChatLogprobs:
    """The scores as `/v1/chat/completions` shows them."""
    return ChatLogprobs(
        [
            _ChatToken(s.chosen.text, _known(s.chosen), list(s.chosen.spelling), [_token(top) for top in s.top])
            for s in scores
        ]
    )


def prompt_logprobs(scores: Sequence[Score] | None) -> PromptLogprobs | UnsetType:
    """The scores as vLLM shows a prompt's."""
    if scores is None:
        return UNSET
    return [
        None
        if score.chosen.logprob is None
        else {str(s.token): _PromptToken(_known(s), s.rank, s.text) for s in (score.chosen, *score.top)}
        for score in scores
    ]


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
