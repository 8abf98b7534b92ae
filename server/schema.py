"""A request's JSON to a frozen call: parsed once, total, never checked again.

Each endpoint has one declaration of its fields (`CompletionBody`, `ChatBody`): name, type, range, meaning, default. Two
tables beside them say which are not acted on: `NOT_YET` fields are refused by name unless they ask for the default, and
`IGNORED` ones are ignored on purpose, each for its reason. An unknown field is refused with the nearest known name.

null is the same as absence, for every field. Types are JSON's: true is not 1, 1.0 is not an integer, "1" is not a
number; a client that means another thing than it wrote shall learn of it. NUL characters in text are refused, because
they come from a client's mistake and the chat templates' library cuts text at them.

Every refusal is a BadRequest whose `param` is the path of the field; only a body that is no JSON object has none.

Knows no HTTP, no tokens, and not which models there are.
"""

import difflib
import json
import re
import secrets
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache
from typing import Annotated, Any, Literal, TypeVar, get_args

import msgspec
from msgspec import NODEFAULT, Meta, Raw, Struct, field, inspect

from server.errors import BadRequest

TokenId = Annotated[int, Meta(ge=0)]
IdList = Annotated[list[TokenId], Meta(min_length=1)]
NonEmpty = Annotated[str, Meta(min_length=1)]
Penalty = Annotated[float, Meta(ge=-2, le=2)]


def about(text: str) -> Meta:
    """A field's meaning, for the API's description."""
    return Meta(description=text)


class StreamOptions(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What a stream carries beside the text."""

    include_usage: Annotated[bool | None, about("A last chunk with the counts and no choices.")] = None
    continuous_usage_stats: Annotated[bool | None, about("The counts so far in every chunk as well.")] = None


class TextPart(Struct, frozen=True, forbid_unknown_fields=True, tag_field="type", tag="text"):
    """A piece of a message's text."""

    text: str


class _OtherPart(Struct, frozen=True, tag_field="type"):
    """A part that is not text: known, so that it can be refused by name."""


class ImagePart(_OtherPart, frozen=True, tag="image_url"):
    """An image."""


class AudioPart(_OtherPart, frozen=True, tag="input_audio"):
    """A sound."""


class FilePart(_OtherPart, frozen=True, tag="file"):
    """A file."""


class RefusalPart(_OtherPart, frozen=True, tag="refusal"):
    """A refusal, from an earlier answer."""


Part = TextPart | ImagePart | AudioPart | FilePart | RefusalPart
Role = Literal["system", "developer", "user", "assistant", "tool"]


class MessageBody(Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """One message of a chat. The fields typed Any are those of answers with tools or sound, sent back."""

    role: Role
    content: str | list[Part] | None = None
    name: str | None = None
    tool_call_id: str | None = None
    tool_calls: Any = None
    function_call: Any = None
    refusal: Any = None
    audio: Any = None
    annotations: Any = None


class CommonBody(Struct, frozen=True, kw_only=True):
    """The fields both endpoints have."""

    model: Annotated[str, about("The served name or an alias of it; absent means the one served.")] = ""
    request_id: Annotated[
        Annotated[str, Meta(pattern=r"^[!-~]{1,256}(?!\n)$")], about("Printable ASCII, to find the request by.")
    ] = ""
    max_tokens: Annotated[
        Annotated[int, Meta(ge=0)] | None, about("New tokens at the most; by default the rest of the context.")
    ] = None
    max_completion_tokens: Annotated[
        Annotated[int, Meta(ge=0)] | None, about("The newer name of max_tokens; where both are sent they must agree.")
    ] = None
    min_tokens: Annotated[int, Meta(ge=0), about("No end before that many new tokens.")] = 0
    temperature: Annotated[float, Meta(ge=0, le=2), about("Divides the logits; 0 is argmax.")] = 1.0
    top_p: Annotated[float, Meta(gt=0, le=1), about("The smallest set of that probability.")] = 1.0
    top_k: Annotated[int, Meta(ge=-1), about("The k likeliest tokens; -1 or 0 is off.")] = 0
    min_p: Annotated[float, Meta(ge=0, le=1), about("Tokens at least that likely, of the likeliest's.")] = 0.0
    seed: Annotated[int | None, about("Any 64-bit integer; the same request and seed give the same answer.")] = None
    stop: Annotated[NonEmpty | Annotated[list[NonEmpty], Meta(max_length=16)], about("Strings that end the text.")] = (
        field(default_factory=list)
    )
    stop_token_ids: Annotated[list[TokenId], about("Tokens that end the request beside the model's own.")] = []
    ignore_eos: Annotated[bool, about("Whether the model's own end tokens do not end the request.")] = False
    include_stop_str_in_output: Annotated[bool, about("Whether what ended the text is shown.")] = False
    frequency_penalty: Annotated[Penalty, about("Taken off a logit for each time its token was generated.")] = 0.0
    presence_penalty: Annotated[Penalty, about("Taken off a logit whose token was generated.")] = 0.0
    repetition_penalty: Annotated[float, Meta(gt=0, le=10), about("Divides or multiplies logits of tokens seen.")] = 1.0
    logit_bias: Annotated[dict[int, Annotated[float, Meta(ge=-100, le=100)]], about("Added to logits, by id.")] = {}
    n: Annotated[int, Meta(ge=1, le=128), about("Choices for each prompt.")] = 1
    prompt_logprobs: Annotated[Annotated[int, Meta(ge=0, le=20)] | None, about("Logprobs of the prompt.")] = None
    stream: Annotated[bool, about("Whether to answer by server-sent events.")] = False
    stream_options: Annotated[StreamOptions | None, about("Only with stream.")] = None
    priority: Annotated[int, about("Lower goes first.")] = 0
    timeout: Annotated[Annotated[float, Meta(gt=0)] | None, about("Seconds until the request is given up.")] = None
    response_format: Annotated[dict[str, Any], about("The form of the answer.")] = field(
        default_factory=lambda: {"type": "text"}
    )
    guided_json: Annotated[Any, about("A JSON schema the text must follow.")] = None
    guided_regex: Annotated[str | None, about("A regular expression the text must match.")] = None
    guided_choice: Annotated[list[str] | None, about("Strings of which the text must be one.")] = None
    guided_grammar: Annotated[str | None, about("A grammar the text must follow.")] = None


class CompletionBody(CommonBody, frozen=True, kw_only=True):
    """The fields of `POST /v1/completions`."""

    prompt: Annotated[
        str | Annotated[list[str | TokenId | IdList], Meta(min_length=1)],
        about("A string, token ids, or a list of either."),
    ]
    logprobs: Annotated[Annotated[int, Meta(ge=0, le=20)] | None, about("Logprobs of each token.")] = None
    echo: Annotated[bool, about("Whether the prompt is part of the text.")] = False
    best_of: Annotated[int, Meta(ge=1), about("Choices to draw and choose from.")] = 1
    suffix: Annotated[str, about("What comes after the text.")] = ""


class ChatBody(CommonBody, frozen=True, kw_only=True):
    """The fields of `POST /v1/chat/completions`."""

    messages: Annotated[list[MessageBody], Meta(min_length=1), about("The chat so far.")]
    max_tokens: Annotated[
        Annotated[int, Meta(ge=1)] | None, about("New tokens at the most; by default the rest of the context.")
    ] = None
    max_completion_tokens: Annotated[
        Annotated[int, Meta(ge=1)] | None, about("The newer name of max_tokens; where both are sent they must agree.")
    ] = None
    logprobs: Annotated[bool, about("Logprobs of each token.")] = False
    top_logprobs: Annotated[int, Meta(ge=0, le=20), about("Of how many tokens beside the chosen one.")] = 0
    add_generation_prompt: Annotated[bool, about("Whether the template opens the assistant's turn.")] = True
    continue_final_message: Annotated[bool, about("Whether the answer continues the last message.")] = False
    chat_template_kwargs: Annotated[dict[str, Any], about("Variables for the chat template.")] = {}
    tools: Annotated[list[Any], about("Functions the model may call.")] = []
    tool_choice: Annotated[str | dict[str, Any], about("Which function must be called.")] = "none"
    parallel_tool_calls: Annotated[bool | None, about("Whether several calls may come at once.")] = None
    functions: Annotated[list[Any], about("The older name of tools.")] = []
    function_call: Annotated[str | dict[str, Any], about("The older name of tool_choice.")] = "none"


# Refused unless the value asks for the default. A row leaves the table when its field is built.
NOT_YET = {
    *("min_tokens", "min_p", "frequency_penalty", "presence_penalty", "repetition_penalty", "logit_bias"),
    *("n", "best_of", "suffix", "echo", "logprobs", "top_logprobs", "prompt_logprobs", "priority", "timeout"),
    *("response_format", "guided_json", "guided_regex", "guided_choice", "guided_grammar"),
    *("tools", "tool_choice", "parallel_tool_calls", "functions", "function_call"),
    *("continue_final_message", "chat_template_kwargs"),
}
MESSAGE_NOT_YET = ("tool_calls", "function_call", "refusal", "audio", "annotations")

# Ignored on purpose, whatever the value.
IGNORED = {
    "user": "there are no accounts to attribute a request to",
    "metadata": "nothing is stored",
    "store": "nothing is stored",
    "service_tier": "there is one tier",
    "safety_identifier": "nobody is reported",
    "prompt_cache_key": "prefixes are found by content",
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Sampling:
    """How tokens are chosen; `max_tokens` None is the rest of the context, `top_k` 0 is off."""

    max_tokens: int | None
    temperature: float
    top_p: float
    top_k: int
    seed: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Stopping:
    """What ends the text, beside the model's own end tokens."""

    strings: tuple[str, ...]
    token_ids: frozenset[int]
    ignore_eos: bool
    include: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Streaming:
    """Whether to stream; `continuous_usage` implies `include_usage`."""

    wanted: bool
    include_usage: bool
    continuous_usage: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class Call:
    """What both endpoints' calls say; `model` and `request_id` are empty where the client named none."""

    model: str
    request_id: str
    sampling: Sampling
    stopping: Stopping
    streaming: Streaming


@dataclass(frozen=True, slots=True, kw_only=True)
class CompletionCall(Call):
    """A completion of each of `prompts`, text or token ids."""

    prompts: tuple[str | tuple[int, ...], ...]


@dataclass(frozen=True, slots=True, kw_only=True)
class Message:
    """One message; `name` and `tool_call_id` are empty where it has none."""

    role: Role
    content: str
    name: str = ""
    tool_call_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ChatCall(Call):
    """The answer to a chat."""

    messages: tuple[Message, ...]
    add_generation_prompt: bool


def parse_completion(body: bytes) -> CompletionCall:
    """Parse the body of `POST /v1/completions`, or raise BadRequest."""
    read = _read(body, CompletionBody)
    return CompletionCall(prompts=_prompts(read.prompt), **_common(read))


def parse_chat(body: bytes) -> ChatCall:
    """Parse the body of `POST /v1/chat/completions`, or raise BadRequest."""
    read = _read(body, ChatBody)
    messages = tuple(_message(message, f"messages[{i}]") for i, message in enumerate(read.messages))
    return ChatCall(messages=messages, add_generation_prompt=read.add_generation_prompt, **_common(read))


Body = TypeVar("Body", bound=CommonBody)


def _read(body: bytes, shape: type[Body]) -> Body:
    fields = _fields(shape)
    values: dict[str, Any] = {}
    for name, raw in _raw_fields(body).items():
        if bytes(raw).strip() == b"null":
            continue
        if name in IGNORED:
            _decode(name, raw, ANYTHING)
            continue
        if name not in fields:
            raise _unknown(name, (*fields, *IGNORED))
        values[name] = _decode(name, raw, fields[name])
    for name, info in fields.items():
        if info.required and name not in values:
            raise BadRequest(f"{name} is missing; it must be {info.words}.", param=name)
        if name in NOT_YET and name in values and values[name] != info.default:
            raise BadRequest(f"{name} is not available on this server yet; leave it out.", param=name)
    return shape(**values)


@dataclass(frozen=True, slots=True)
class _Field:
    """A declared field: how to decode it, and how to say what it must be."""

    decoder: msgspec.json.Decoder[Any]
    words: str
    required: bool = False
    default: Any = None


ANYTHING = _Field(msgspec.json.Decoder(), "valid JSON")


@cache
def _fields(shape: type[CommonBody]) -> dict[str, _Field]:
    return {
        info.name: _Field(
            msgspec.json.Decoder(info.type), _words(inspect.type_info(info.type)), info.required, _default(info)
        )
        for info in msgspec.structs.fields(shape)
    }


def _default(info: msgspec.structs.FieldInfo) -> object:
    if info.default_factory is not NODEFAULT:
        return info.default_factory()
    return info.default


def _raw_fields(body: bytes) -> dict[str, Raw]:
    if not body.strip():
        raise BadRequest("The body is empty; it must be a JSON object.")
    try:
        return msgspec.json.decode(body, type=dict[str, Raw])
    except msgspec.ValidationError as error:
        raise BadRequest("The body must be a JSON object.") from error
    except RecursionError as error:
        raise BadRequest("The body is nested too deeply.") from error
    except msgspec.DecodeError as error:
        if (name := _blamed(body)) is not None:
            said = f"{name} has a value that JSON does not allow: NaN, Infinity or a lone surrogate."
            raise BadRequest(said, param=name) from error
        raise BadRequest(f"The body is not valid JSON: {error}.") from error


BLAMED_BYTES = 2**20  # a larger body is not read a second time for the sake of a better message


def _blamed(body: bytes) -> str | None:
    """The field whose value alone is no JSON: NaN, Infinity, a lone surrogate. None if more than that is wrong."""
    if len(body) > BLAMED_BYTES:
        return None
    try:
        fields = json.loads(body)
        if not isinstance(fields, dict):
            return None
        for name, value in fields.items():
            try:
                msgspec.json.decode(json.dumps(value))
            except msgspec.DecodeError:
                return str(name)
    except (ValueError, RecursionError):
        pass
    return None


def _decode(name: str, raw: Raw, declared: _Field) -> Any:  # noqa: ANN401 - each field's own type
    try:
        return declared.decoder.decode(raw)
    except msgspec.ValidationError as error:
        raise _mistyped(name, str(error), declared.words) from error
    except RecursionError as error:
        raise BadRequest(f"{name} is nested too deeply.", param=name) from error
    except msgspec.DecodeError as error:
        raise BadRequest(f"{name} is not valid JSON text: {error}.", param=name) from error


LOCATED = re.compile(r"(?P<what>.*?)(?: - at (?:`key` in )?`\$?(?P<path>.*)`)?", re.DOTALL)
UNKNOWN = re.compile(r"Object contains unknown field `(.*)`", re.DOTALL)


def _mistyped(name: str, complaint: str, words: str) -> BadRequest:
    """A validation error of msgspec's, its place turned into a path from the body."""
    located = LOCATED.fullmatch(complaint)
    what, place = (located["what"], located["path"] or "") if located else (complaint, "")
    path = name + place
    if unknown := UNKNOWN.fullmatch(what):
        inner = StreamOptions if name == "stream_options" else MessageBody
        return _unknown(unknown[1], inner.__struct_fields__, f"{path}.")
    if what.startswith("Invalid enum value"):
        what += f"; it must be one of {', '.join(get_args(Role))}"
    hint = f" {name} must be {words}." if not place else ""
    return BadRequest(f"{path}: {what}.{hint}", param=path)


def _unknown(name: str, known: Iterable[str], prefix: str = "") -> BadRequest:
    near = difflib.get_close_matches(name[:64], known, n=1)
    hint = f" Did you mean {prefix}{near[0]}?" if near else ""
    return BadRequest(f"{prefix}{name[:64]} is not a field known here.{hint}", param=prefix + name[:64])


def _words(info: inspect.Type) -> str:
    """What a declared type asks for, in words."""
    match info:
        case inspect.Metadata(type=inner):
            return _words(inner)
        case inspect.UnionType(types=types):
            return " or ".join(
                dict.fromkeys(_words(type_) for type_ in types if not isinstance(type_, inspect.NoneType))
            )
        case inspect.IntType():
            return "an integer" + _range(info)
        case inspect.FloatType():
            return "a number" + _range(info)
        case inspect.StrType(min_length=least):
            return "a string that is not empty" if least else "a string"
        case inspect.BoolType():
            return "true or false"
        case inspect.ListType(item_type=item, min_length=least, max_length=most):
            size = f"up to {most} of: " if most else "at least one of: " if least else ""
            return f"a list of {size}{_words(item)}"
        case _:
            return "an object"


def _range(info: inspect.IntType | inspect.FloatType) -> str:
    low = f" from {info.ge}" if info.ge is not None else f" above {info.gt}" if info.gt is not None else ""
    return low + (f" to {info.le}" if info.le is not None else "")


def _common(read: CommonBody) -> dict[str, Any]:
    return {
        "model": read.model,
        "request_id": read.request_id,
        "sampling": Sampling(
            max_tokens=_max_tokens(read),
            temperature=read.temperature,
            top_p=read.top_p,
            top_k=max(read.top_k, 0),
            seed=_seed(read.seed),
        ),
        "stopping": Stopping(
            strings=_stops(read.stop),
            token_ids=frozenset(read.stop_token_ids),
            ignore_eos=read.ignore_eos,
            include=read.include_stop_str_in_output,
        ),
        "streaming": _streaming(read),
    }


def _max_tokens(read: CommonBody) -> int | None:
    old, new = read.max_tokens, read.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise BadRequest(
            f"max_tokens is {old} and max_completion_tokens {new}: they mean the same, send one.",
            param="max_completion_tokens",
        )
    return new if old is None else old


def _seed(seed: int | None) -> int:
    """A seed as 64 bits without a sign; drawn where none was given."""
    if seed is None:
        return secrets.randbits(63)
    if not -(2**63) <= seed < 2**64:
        raise BadRequest("seed must be a 64-bit integer.", param="seed")
    return seed % 2**64


def _stops(stop: str | list[str]) -> tuple[str, ...]:
    strings = (stop,) if isinstance(stop, str) else tuple(stop)
    for string in strings:
        _text(string, "stop")
    return tuple(dict.fromkeys(strings))


def _streaming(read: CommonBody) -> Streaming:
    options = read.stream_options
    if options is not None and not read.stream:
        raise BadRequest("stream_options is only for requests with stream true.", param="stream_options")
    continuous = options is not None and bool(options.continuous_usage_stats)
    usage = continuous or (options is not None and bool(options.include_usage))
    return Streaming(wanted=read.stream, include_usage=usage, continuous_usage=continuous)


def _prompts(prompt: str | list[Any]) -> tuple[str | tuple[int, ...], ...]:
    if isinstance(prompt, str):
        return (_text(prompt, "prompt"),)
    if all(isinstance(item, int) for item in prompt):
        return (tuple(prompt),)
    if len({type(item) for item in prompt}) > 1:
        raise BadRequest("prompt mixes strings, token ids and lists of ids; send one kind.", param="prompt")
    if len(prompt) > 1:
        raise BadRequest("Several prompts in one request are not available on this server yet.", param="prompt")
    only = prompt[0]
    return (_text(only, "prompt[0]") if isinstance(only, str) else tuple(only),)


def _message(body: MessageBody, path: str) -> Message:
    for name in MESSAGE_NOT_YET:
        if getattr(body, name) not in (None, []):
            raise BadRequest(f"{path}.{name} is not available on this server yet.", param=f"{path}.{name}")
    if body.content is None:
        raise BadRequest(f"{path}.content is missing; it must be a string or text parts.", param=f"{path}.content")
    return Message(
        role=body.role,
        content=_content(body.content, f"{path}.content"),
        name=_text(body.name or "", f"{path}.name"),
        tool_call_id=_text(body.tool_call_id or "", f"{path}.tool_call_id"),
    )


def _content(content: str | list[Part], path: str) -> str:
    """A message's text; parts are joined by line ends, as vLLM joins them."""
    if isinstance(content, str):
        return _text(content, path)
    return "\n".join(_part(part, f"{path}[{i}]") for i, part in enumerate(content))


def _part(part: Part, path: str) -> str:
    if isinstance(part, TextPart):
        return _text(part.text, f"{path}.text")
    kind = type(part).__struct_config__.tag
    raise BadRequest(f"{path} is of type {kind}; this server reads text parts only.", param=path)


def _text(text: str, path: str) -> str:
    if "\0" in text:
        raise BadRequest(f"{path} has a NUL character at position {text.index(chr(0))}; text cannot.", param=path)
    return text
