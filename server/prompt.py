"""A call to what the scheduler takes: chat template, tokens, length check, sampling parameters.

Two libraries share the work, each for what it does right. onnxruntime-genai renders chat templates. `tokenizers`
encodes, because it follows tokenizer.json to the letter; onnxruntime-genai's encoder was measured against it and

    cuts the text at a NUL character,
    skips normalizers (Qwen's NFC) and splits some runs of white space elsewhere,
    leaves out the beginning-of-text token that the post-processor adds.

A completion's text is encoded with the tokens the post-processor adds; a rendered chat without them, since templates
write their own and a second beginning-of-text token changes the answer. Special tokens spelled in a text are those
tokens, as in other servers: a prompt is trusted with the conversation it writes.

Knows no HTTP and no asyncio. Encoding releases the GIL; a text that cannot fit the context is refused unread.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from tokenizers import Tokenizer

from scheduler.errors import ModelFolderError
from scheduler.params import SamplingParams
from server.errors import BadRequest, ContextLengthExceeded
from server.schema import Call, ChatCall, CompletionCall, Message
from server.text import StopRule

# How many characters of a text a normalizer may turn into one, to be on the safe side where texts are refused unread.
SHRINKING = 4


@dataclass(frozen=True, slots=True)
class Prepared:
    """A call made ready: nothing about it is decided later.

    Attributes:
        tokens: the prompt, at least one and fewer than the context holds.
        params: for the scheduler; `max_tokens` fits the context.
        stop: for the text.
    """

    tokens: tuple[int, ...]
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

    def __init__(self, tokenizer: Tokenizer, template: "ChatTemplate | None", limits: Limits) -> None:
        self._tokenizer = tokenizer
        self._template = template
        self._limits = limits
        longest = max(map(len, tokenizer.get_vocab(with_added_tokens=True)), default=1)
        self._most_characters = limits.context * longest * SHRINKING

    @classmethod
    def from_folder(cls, folder: Path, context: int, vocab_size: int, end_tokens: frozenset[int]) -> "Prompter":
        """Read a model folder's tokenizer and chat template.

        Raises:
            ModelFolderError: one of its files cannot be read.
        """
        try:
            tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        except Exception as error:  # the library raises no narrower class
            raise ModelFolderError(f"{folder / 'tokenizer.json'} cannot be read: {error}") from error
        tokenizer.no_truncation()
        tokenizer.no_padding()
        begin = _json(folder / "genai_config.json").get("model", {}).get("bos_token_id")
        limits = Limits(context, vocab_size, end_tokens, begin if isinstance(begin, int) else None)
        return cls(tokenizer, ChatTemplate.from_folder(folder), limits)

    @property
    def has_template(self) -> bool:
        """Whether the model can chat."""
        return self._template is not None

    def completion(self, call: CompletionCall) -> Prepared:
        """Prepare the completion of the call's one prompt."""
        (prompt,) = call.prompts
        tokens = self._encode(prompt, "prompt", add_special_tokens=True) if isinstance(prompt, str) else prompt
        if not tokens and self._limits.begin_token is not None:
            tokens = (self._limits.begin_token,)
        return self._prepare(call, tokens, "prompt")

    def chat(self, call: ChatCall) -> Prepared:
        """Prepare the answer to a chat."""
        if self._template is None:
            raise BadRequest("This model has no chat template; use /v1/completions.", param="messages")
        text = self._template.render(call.messages, call.add_generation_prompt)
        return self._prepare(call, self._encode(text, "messages", add_special_tokens=False), "messages")

    def _encode(self, text: str, param: str, *, add_special_tokens: bool) -> tuple[int, ...]:
        if len(text) > self._most_characters:
            raise ContextLengthExceeded(self._limits.context, self._limits.context, param=param, exact=False)
        # The batch form is the one that releases the GIL; the fast one leaves out offsets, which nobody reads.
        (encoding,) = self._tokenizer.encode_batch_fast([text], add_special_tokens=add_special_tokens)
        return tuple(encoding.ids)

    def _prepare(self, call: Call, tokens: tuple[int, ...], param: str) -> Prepared:
        self._check(tokens, param)
        self._check_ids(call.stopping.token_ids, "stop_token_ids")
        asked, stopping, limits = call.sampling, call.stopping, self._limits
        rest = limits.context - len(tokens)
        end_tokens = stopping.token_ids | (frozenset() if stopping.ignore_eos else limits.end_tokens)
        params = SamplingParams(
            max_tokens=rest if asked.max_tokens is None else min(asked.max_tokens, rest),
            temperature=asked.temperature,
            top_k=min(asked.top_k, limits.vocab_size),
            top_p=asked.top_p,
            seed=asked.seed,
            end_tokens=end_tokens,
        )
        rule = StopRule(strings=stopping.strings, include=stopping.include, end_tokens=end_tokens)
        return Prepared(tokens, params, rule)

    def _check(self, tokens: tuple[int, ...], param: str) -> None:
        if not tokens:
            raise BadRequest(f"{param} is empty, and this model has no token to begin from.", param=param)
        if len(tokens) >= self._limits.context:
            raise ContextLengthExceeded(len(tokens), self._limits.context, param=param)
        self._check_ids(tokens, param)

    def _check_ids(self, ids: Sequence[int] | frozenset[int], param: str) -> None:
        highest = max(ids, default=0)
        if highest >= self._limits.vocab_size:
            raise BadRequest(
                f"{param} has the token id {highest}; the model's ids are below {self._limits.vocab_size}.", param=param
            )


class ChatTemplate:
    """A model folder's chat template, rendered by onnxruntime-genai.

    Where the template does not know the role `developer`, its messages are `system` ones: OpenAI gave the role that
    other name, and templates drop or reject roles they do not know.
    """

    def __init__(self, folder: Path, source: str) -> None:
        import onnxruntime_genai as og  # noqa: PLC0415 - a second to load, for which only serving has a use

        try:
            self._tokenizer = og.Tokenizer(str(folder))
        except Exception as error:  # its JSON reader's errors have no class in Python
            raise ModelFolderError(f"onnxruntime-genai cannot read the tokenizer of {folder}: {error}") from error
        self._source = source
        self._developer = "developer" if "developer" in source else "system"

    @classmethod
    def from_folder(cls, folder: Path) -> "ChatTemplate | None":
        """The folder's template: chat_template.jinja, else tokenizer_config.json's; None where it has neither."""
        path = folder / "chat_template.jinja"
        if path.exists():
            source = path.read_text(encoding="utf-8")
        else:
            source = str(_json(folder / "tokenizer_config.json").get("chat_template") or "")
        return cls(folder, source) if source.strip() else None

    def render(self, messages: Sequence[Message], add_generation_prompt: bool) -> str:
        """The chat as the model reads it; BadRequest with the template's words where it refuses the messages."""
        assert not any("\0" in message.content for message in messages), "the schema lets no NUL through"
        shown = msgspec.json.encode([self._shown(message) for message in messages]).decode()
        try:
            return str(
                self._tokenizer.apply_chat_template(
                    shown, template_str=self._source, add_generation_prompt=add_generation_prompt
                )
            )
        except RuntimeError as error:
            reason = str(error).split(" at row ", 1)[0]  # what follows is where in the template
            raise BadRequest(f"The model's chat template refuses these messages: {reason}", param="messages") from error

    def _shown(self, message: Message) -> dict[str, str]:
        role = self._developer if message.role == "developer" else message.role
        optional = {"name": message.name, "tool_call_id": message.tool_call_id}
        return {"role": role, "content": message.content} | {key: value for key, value in optional.items() if value}


def _json(path: Path) -> dict[str, Any]:
    """A JSON file's object; empty where there is no file."""
    try:
        return msgspec.json.decode(path.read_bytes(), type=dict[str, Any])
    except FileNotFoundError:
        return {}
    except (OSError, msgspec.MsgspecError) as error:
        raise ModelFolderError(f"{path} cannot be read: {error}") from error
