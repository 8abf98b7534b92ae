"""A request's JSON to a frozen call: parsed once, total, never checked again.

`server.bodies` declares the fields, `server.fields` decodes them one by one; here is what lies between fields: those
that must agree, those that go only with another, what is refused until it is built. NUL characters in text are
refused, because they come from a client's mistake and tokenizers are at odds about them.

Every refusal is a BadRequest whose `param` is the path of the field. Knows no HTTP, no tokens, and not which models
there are.
"""

import secrets
from typing import Any, TypeVar

import msgspec
from msgspec import Struct

from server.bodies import (
    IGNORED,
    NOT_YET,
    ChatBody,
    CommonBody,
    CompletionBody,
    DetokenizeBody,
    NamedBody,
    TokenizeBody,
)
from server.call import (
    Chat,
    ChatCall,
    CompletionCall,
    DetokenizeCall,
    Handling,
    Reporting,
    Sampling,
    Stopping,
    Streaming,
    TokenizeCall,
)
from server.defaults import OPENAI, Defaults
from server.errors import BadRequest
from server.fields import declared, read
from server.message_bodies import MessageBody
from server.messages import parse_message, plain_text
from server.unknown import OnUnknown, refuse

Body = TypeVar("Body", bound=Struct)
Number = TypeVar("Number", int, float)


def request_id_of(body: bytes) -> str:
    """The `request_id` that a body gives itself, whatever else is wrong with it; empty where there is none of use."""
    if b'"request_id"' not in body:
        return ""
    try:
        return msgspec.json.decode(body, type=NamedBody).request_id or ""
    except (msgspec.MsgspecError, RecursionError):
        return ""


def parse_completion(body: bytes, on_unknown: OnUnknown = refuse, defaults: Defaults = OPENAI) -> CompletionCall:
    """Parse the body of `POST /v1/completions`, or raise BadRequest."""
    fields = _read(body, CompletionBody, on_unknown)
    if fields.best_of not in (1, fields.n):
        raise BadRequest("best_of is not available on this server yet; leave it out, or as n.", param="best_of")
    reporting = Reporting(logprobs=fields.logprobs, prompt_logprobs=fields.prompt_logprobs, echo=fields.echo)
    return CompletionCall(prompts=_prompts(fields.prompt), reporting=reporting, **_common(fields, defaults))


def parse_chat(body: bytes, on_unknown: OnUnknown = refuse, defaults: Defaults = OPENAI) -> ChatCall:
    """Parse the body of `POST /v1/chat/completions`, or raise BadRequest."""
    fields = _read(body, ChatBody, on_unknown)
    if fields.top_logprobs and not fields.logprobs:
        raise BadRequest("top_logprobs is only for requests with logprobs true.", param="top_logprobs")
    logprobs = fields.top_logprobs if fields.logprobs else None
    reporting = Reporting(logprobs=logprobs, prompt_logprobs=fields.prompt_logprobs, echo=False)
    return ChatCall(chat=_chat(fields.messages, fields), reporting=reporting, **_common(fields, defaults))


def parse_tokenize(body: bytes, on_unknown: OnUnknown = refuse) -> TokenizeCall:
    """Parse the body of `POST /tokenize`, or raise BadRequest."""
    fields = _read(body, TokenizeBody, on_unknown)
    if (fields.prompt is None) == (fields.messages is None):
        raise BadRequest("Send either prompt, a string, or messages.", param="prompt")
    add = fields.add_special_tokens
    if fields.messages is not None:
        source: str | Chat = _chat(fields.messages, fields)
    else:
        source = plain_text(fields.prompt or "", "prompt")
    return TokenizeCall(
        model=fields.model,
        source=source,
        add_special_tokens=isinstance(source, str) if add is None else add,
        strings=fields.return_token_strs,
    )


def parse_detokenize(body: bytes, on_unknown: OnUnknown = refuse) -> DetokenizeCall:
    """Parse the body of `POST /detokenize`, or raise BadRequest."""
    fields = _read(body, DetokenizeBody, on_unknown)
    return DetokenizeCall(model=fields.model, tokens=tuple(fields.tokens))


def _read(body: bytes, shape: type[Body], on_unknown: OnUnknown) -> Body:
    fields = read(body, shape, IGNORED, on_unknown)
    for name, field in declared(shape).items():
        if name in NOT_YET and getattr(fields, name) not in (field.default, *NOT_YET[name]):
            raise BadRequest(f"{name} is not available on this server yet; leave it out.", param=name)
    return fields


def _common(fields: CommonBody, defaults: Defaults) -> dict[str, Any]:
    """What a Call has but for its reporting."""
    return {
        "model": fields.model,
        "n": fields.n,
        "sampling": _sampling(fields, defaults),
        "stopping": Stopping(
            strings=_stops(fields.stop),
            token_ids=frozenset(fields.stop_token_ids),
            ignore_eos=fields.ignore_eos,
            include=fields.include_stop_str_in_output,
        ),
        "streaming": _streaming(fields),
        "handling": Handling(
            request_id=fields.request_id,
            priority=fields.priority,
            timeout=fields.timeout,
            cache_salt=fields.cache_salt or "",
        ),
    }


def _sampling(fields: CommonBody, defaults: Defaults) -> Sampling:
    return Sampling(
        max_tokens=_max_tokens(fields, defaults),
        min_tokens=fields.min_tokens,
        temperature=_given(fields.temperature, defaults.temperature),
        top_p=_given(fields.top_p, defaults.top_p),
        top_k=max(_given(fields.top_k, defaults.top_k), 0),
        min_p=_given(fields.min_p, defaults.min_p),
        frequency_penalty=fields.frequency_penalty,
        presence_penalty=fields.presence_penalty,
        repetition_penalty=_given(fields.repetition_penalty, defaults.repetition_penalty),
        logit_bias=tuple((token, bias) for token, bias in fields.logit_bias.items() if bias),
        seed=_seed(fields.seed),
    )


def _given(value: Number | None, default: Number) -> Number:
    return default if value is None else value


def _max_tokens(fields: CommonBody, defaults: Defaults) -> int | None:
    old, new = fields.max_tokens, fields.max_completion_tokens
    if old is not None and new is not None and old != new:
        raise BadRequest(
            f"max_tokens is {old} and max_completion_tokens {new}: they mean the same, send one.",
            param="max_completion_tokens",
        )
    most = new if old is None else old
    if most is None:
        return defaults.max_tokens and max(defaults.max_tokens, fields.min_tokens)
    if fields.min_tokens > most:
        raise BadRequest(f"min_tokens is {fields.min_tokens}, above max_tokens, {most}.", param="min_tokens")
    return most


def _seed(seed: int | None) -> int:
    """A seed as 64 bits without a sign; drawn where none was given, and for -1, as several clients and vLLM have it."""
    if seed is None or seed == -1:
        return secrets.randbits(63)
    if not -(2**63) <= seed < 2**64:
        raise BadRequest("seed must be a 64-bit integer.", param="seed")
    return seed % 2**64


def _stops(stop: str | list[str]) -> tuple[str, ...]:
    strings = (stop,) if isinstance(stop, str) else tuple(stop)
    for string in strings:
        plain_text(string, "stop")
    return tuple(dict.fromkeys(strings))


def _streaming(fields: CommonBody) -> Streaming:
    options = fields.stream_options
    if options is not None and not fields.stream:
        raise BadRequest("stream_options is only for requests with stream true.", param="stream_options")
    continuous = options is not None and bool(options.continuous_usage_stats)
    usage = continuous or (options is not None and bool(options.include_usage))
    return Streaming(wanted=fields.stream, include_usage=usage, continuous_usage=continuous)


def _prompts(prompt: str | list[Any]) -> tuple[str | tuple[int, ...], ...]:
    if isinstance(prompt, str):
        return (plain_text(prompt, "prompt"),)
    kinds = {type(item) for item in prompt}
    if kinds == {int}:
        return (tuple(prompt),)
    if len(kinds) > 1:
        raise BadRequest("prompt mixes strings, token ids and lists of ids; send one kind.", param="prompt")
    return tuple(
        plain_text(item, f"prompt[{i}]") if isinstance(item, str) else tuple(item) for i, item in enumerate(prompt)
    )


def _chat(messages: list[MessageBody], fields: ChatBody | TokenizeBody) -> Chat:
    go_on = fields.continue_final_message
    opens = fields.add_generation_prompt
    if go_on and opens:
        raise BadRequest(
            "continue_final_message and add_generation_prompt exclude each other.", param="continue_final_message"
        )
    return Chat(
        messages=tuple(parse_message(message, f"messages[{i}]") for i, message in enumerate(messages)),
        add_generation_prompt=not go_on if opens is None else opens,
        continue_final_message=go_on,
        variables=_variables(fields),
    )


def _variables(fields: ChatBody | TokenizeBody) -> dict[str, Any]:
    """The template's variables: the client's own, and those that a field of its own stands for."""
    effort = fields.reasoning_effort if isinstance(fields, ChatBody) else None
    given = {} if effort is None else {"reasoning_effort": plain_text(effort, "reasoning_effort")}
    return given | fields.chat_template_kwargs
