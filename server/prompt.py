"""A call to what the scheduler takes: chat template, tokens, length check, sampling parameters.

`tokenizers` encodes, because it follows tokenizer.json to the letter; onnxruntime-genai's encoder was measured against
it and

    cuts the text at a NUL character,
    skips normalizers (Qwen's NFC) and splits some runs of white space elsewhere,
    leaves out the beginning-of-text token that the post-processor adds.

A completion's text is encoded with the tokens the post-processor adds; a rendered chat without them, since templates
write their own and a second beginning-of-text token changes the answer. Special tokens spelled in a text are those
tokens, as in other servers: a prompt is trusted with the conversation it writes.

Knows no HTTP and no asyncio. Encoding releases the GIL; a text that cannot fit the context is refused unread.
"""

from collections.abc import Collection
from dataclasses import dataclass
from pathlib import Path

from tokenizers import Tokenizer

from scheduler.errors import ModelFolderError
from scheduler.params import SamplingParams
from server.call import Call, Chat, ChatCall, CompletionCall, DetokenizeCall, TokenizeCall
from server.chat_template import ChatTemplate
from server.encoder import Encoder
from server.errors import BadRequest, ContextLengthExceeded
from server.model_files import read_json
from server.text import StopRule


@dataclass(frozen=True, slots=True)
class Prompt:
    """A prompt made ready.

    Attributes:
        tokens: at least one and fewer than the context holds.
        text: a completion's, as the client sent it; None where it sent tokens.
        offsets: for each token, where it begins in `text`; empty where nobody asked.
        params: for the scheduler; `max_tokens` fits the context.
        stop: for the text.
    """

    tokens: tuple[int, ...]
    text: str | None
    offsets: tuple[int, ...]
    params: SamplingParams
    stop: StopRule


@dataclass(frozen=True, slots=True)
class Limits:
    """What the model can take.

    Attributes:
        context: tokens of prompt and answer together.
        vocab_size: ids are below it.
        end_tokens: ids that end an answer.
        begin_token: what an answer to nothing begins from; None where the model has no such token.
    """

    context: int
    vocab_size: int
    end_tokens: frozenset[int]
    begin_token: int | None = None


class Prompter:
    """Prepares calls for one model. Its methods raise BadRequest for what cannot be answered."""

    def __init__(self, tokenizer: Tokenizer, template: ChatTemplate | None, limits: Limits) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._limits = limits
        self._encoder = Encoder(tokenizer, limits.context)

    @classmethod
    def from_folder(cls, folder: Path, context: int, vocab_size: int, end_tokens: frozenset[int]) -> "Prompter":
        """Read a model folder's tokenizer and chat template.

        Raises:
            ModelFolderError: one of its files cannot be read.
        """
        tokenizer = read_tokenizer(folder)
        tokenizer.no_truncation()
        tokenizer.no_padding()
        begin = read_json(folder / "genai_config.json").get("model", {}).get("bos_token_id")
        limits = Limits(context, vocab_size, end_tokens, begin if isinstance(begin, int) else None)
        return cls(tokenizer, ChatTemplate.from_folder(folder), limits)

    @property
    def has_template(self) -> bool:
        """Whether the model can chat."""
        return self._template is not None

    def completion(self, call: CompletionCall) -> tuple[Prompt, ...]:
        """Prepare the call's prompts."""
        several = len(call.prompts) > 1
        return tuple(
            self._completion(call, prompt, f"prompt[{i}]" if several else "prompt")
            for i, prompt in enumerate(call.prompts)
        )

    def chat(self, call: ChatCall) -> tuple[Prompt, ...]:
        """Prepare the answer to a chat, which is one prompt."""
        text = self._render(call.chat)
        tokens = tuple(self._encoder.fitting(text, "messages", special=False).ids)
        return (self._ready(call, tokens, "messages", None),)

    def tokenize(self, call: TokenizeCall) -> tuple[int, ...]:
        """The tokens of a text or a chat."""
        param, text = (
            ("prompt", call.source) if isinstance(call.source, str) else ("messages", self._render(call.source))
        )
        return tuple(self._encoder.encode(text, param, special=call.add_special_tokens).ids)

    def detokenize(self, call: DetokenizeCall) -> str:
        """The text of tokens, special ones included."""
        self._check_ids(call.tokens, "tokens")
        (text,) = self._tokenizer.decode_batch([call.tokens], skip_special_tokens=False)  # this one releases the GIL
        return str(text)

    def _completion(self, call: CompletionCall, prompt: str | tuple[int, ...], param: str) -> Prompt:
        if isinstance(prompt, str):
            offsets = call.reporting.echo and call.reporting.logprobs is not None
            encoding = self._encoder.fitting(prompt, param, special=True, offsets=offsets)
            tokens, starts = tuple(encoding.ids), tuple(start for start, _ in encoding.offsets) if offsets else ()
        else:
            tokens, starts = prompt, ()
        if not tokens and self._limits.begin_token is not None:
            tokens, starts = (self._limits.begin_token,), (0,)
        return self._ready(call, tokens, param, prompt if isinstance(prompt, str) else None, starts)

    def _render(self, chat: Chat) -> str:
        if self._template is None:
            raise BadRequest("This model has no chat template; use /v1/completions.", param="messages")
        text = self._template.render(chat, self._encoder.most_characters)
        if text is None:
            raise self._encoder.too_long("messages")
        return text

    def _ready(
        self, call: Call, tokens: tuple[int, ...], param: str, text: str | None, offsets: tuple[int, ...] = ()
    ) -> Prompt:
        self._check(tokens, param)
        stopping, asked, rest = call.stopping, call.sampling.max_tokens, self._limits.context - len(tokens)
        end_tokens = stopping.token_ids | (frozenset() if stopping.ignore_eos else self._limits.end_tokens)
        self._check_call(call, end_tokens)
        params = _params(call, rest if asked is None else min(asked, rest), end_tokens)
        rule = StopRule(
            strings=stopping.strings,
            include=stopping.include,
            end_tokens=end_tokens,
            min_tokens=call.sampling.min_tokens,
        )
        return Prompt(tokens, text, offsets, params, rule)

    def _check(self, tokens: tuple[int, ...], param: str) -> None:
        if not tokens:
            raise BadRequest(f"{param} is empty, and this model has no token to begin from.", param=param)
        if len(tokens) >= self._limits.context:
            raise ContextLengthExceeded(len(tokens), self._limits.context, param=param)
        self._check_ids(tokens, param)

    def _check_call(self, call: Call, end_tokens: frozenset[int]) -> None:
        self._check_ids(call.stopping.token_ids, "stop_token_ids")
        self._check_ids([token for token, _ in call.sampling.logit_bias], "logit_bias")
        if call.sampling.min_tokens and len(end_tokens) >= self._limits.vocab_size:
            raise BadRequest("min_tokens leaves no token to choose: every one is an end token.", param="min_tokens")

    def _check_ids(self, ids: Collection[int], param: str) -> None:
        highest = max(ids, default=0)
        if highest >= self._limits.vocab_size:
            raise BadRequest(
                f"{param} has the token id {highest}; the model's ids are below {self._limits.vocab_size}.", param=param
            )


def read_tokenizer(folder: Path) -> Tokenizer:
    """A model folder's tokenizer.

    Raises:
        ModelFolderError: it is missing or cannot be read.
    """
    path = folder / "tokenizer.json"
    if not path.is_file():
        raise ModelFolderError(
            f"{path} is missing, and text is served with it: export the model anew, or save a fast tokenizer there"
        )
    try:
        return Tokenizer.from_file(str(path))
    except Exception as error:  # the library raises no narrower class
        raise ModelFolderError(f"{path} cannot be read ({error}): download or export the model anew") from error


def _params(call: Call, max_tokens: int, end_tokens: frozenset[int]) -> SamplingParams:
    asked = call.sampling
    return SamplingParams(
        max_tokens=max_tokens,
        min_tokens=asked.min_tokens,
        temperature=asked.temperature,
        top_k=asked.top_k,
        top_p=asked.top_p,
        min_p=asked.min_p,
        frequency_penalty=asked.frequency_penalty,
        presence_penalty=asked.presence_penalty,
        repetition_penalty=asked.repetition_penalty,
        logit_bias=asked.logit_bias,
        seed=asked.seed,
        end_tokens=end_tokens,
        logprobs=call.reporting.logprobs,
        prompt_logprobs=call.reporting.of_prompt,
    )
