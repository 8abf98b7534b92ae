import dataclasses
import json
from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from server.bodies import IGNORED, NOT_YET, ChatBody, CompletionBody
from server.call import ChatCall, CompletionCall, Message
from server.errors import BadRequest
from server.schema import parse_chat, parse_completion, parse_detokenize, parse_tokenize, request_id_of

CHAT = {"messages": [{"role": "user", "content": "hi"}]}
COMPLETION = {"prompt": "hi"}
USER = {"role": "user", "content": "hi"}


def completion(**fields: object) -> CompletionCall:
    return parse_completion(json.dumps(COMPLETION | fields).encode())


def chat(**fields: object) -> ChatCall:
    return parse_chat(json.dumps(CHAT | fields).encode())


def refused_completion(body: bytes | dict[str, Any]) -> BadRequest:
    data = body if isinstance(body, bytes) else json.dumps(COMPLETION | body).encode()
    with pytest.raises(BadRequest) as caught:
        parse_completion(data)
    return caught.value


def refused_chat(**fields: object) -> BadRequest:
    with pytest.raises(BadRequest) as caught:
        chat(**fields)
    return caught.value


@pytest.mark.parametrize(
    ("body", "name"),
    [
        (b'{"request_id": "mine", "prompt": 3, "temprature": 1}', "mine"),
        (b'{"request_id": "a", "request_id": "b"}', "b"),
        (b'{"request_id": null}', ""),
        (b'{"request_id": 3}', ""),
        (b'{"request_id": "a b"}', ""),
        (b'{"metadata": {"request_id": "inside"}}', ""),
        (b'{"request_id": "cut', ""),
        (b'["request_id"]', ""),
        (b'{"request_id": "deep", "prompt": ' + b"[" * 100_000, ""),
        (b"", ""),
    ],
)
def test_a_body_s_own_name_is_known_before_anything_else_of_it(body: bytes, name: str) -> None:
    assert request_id_of(body) == name


def test_a_bare_completion_has_every_value() -> None:
    call = completion()
    assert call.prompts == ("hi",)
    assert (call.model, call.handling.request_id) == ("", "")
    assert dataclasses.astuple(call.sampling)[:-1] == (None, 0, 1.0, 1.0, 0, 0.0, 0.0, 0.0, 1.0, ())
    assert (call.n, call.handling.priority, call.handling.timeout) == (1, 0, None)
    assert dataclasses.astuple(call.reporting) == (None, None, False)
    assert (call.stopping.strings, call.stopping.token_ids) == ((), frozenset())
    assert dataclasses.astuple(call.streaming) == (False, False, False)
    assert (call.stopping.ignore_eos, call.stopping.include) == (False, False)


def test_a_bare_chat_has_its_messages_and_opens_the_answer() -> None:
    call = chat()
    assert call.chat.messages == (Message(role="user", parts=("hi",)),)
    assert call.chat.add_generation_prompt
    assert not call.chat.continue_final_message


def test_calls_are_frozen() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        completion().model = "x"  # type: ignore[misc]


def test_every_honoured_field_arrives() -> None:
    call = completion(
        model="m", request_id="r-1", max_tokens=7, temperature=0.5, top_p=0.9, top_k=40, seed=3, stop=["a", "b", "a"],
        stop_token_ids=[5, 6], ignore_eos=True, include_stop_str_in_output=True, stream=True,
        stream_options={"include_usage": True, "continuous_usage_stats": True}, n=2, min_tokens=1, min_p=0.1,
        frequency_penalty=1, presence_penalty=-2, repetition_penalty=1.5, logit_bias={"7": -100, "8": 0}, logprobs=3,
        prompt_logprobs=2, echo=True, priority=-5, timeout=2.5, cache_salt="s",
    )  # fmt: skip
    assert (call.model, call.handling.request_id) == ("m", "r-1")
    assert dataclasses.astuple(call.sampling) == (7, 1, 0.5, 0.9, 40, 0.1, 1.0, -2.0, 1.5, ((7, -100.0),), 3)
    assert dataclasses.astuple(call.reporting) == (3, 2, True)
    assert (call.n, call.handling.priority, call.handling.timeout) == (2, -5, 2.5)
    assert call.handling.cache_salt == "s"
    assert dataclasses.astuple(call.stopping) == (("a", "b"), frozenset({5, 6}), True, True)
    assert dataclasses.astuple(call.streaming) == (True, True, True)


@pytest.mark.parametrize("fields", [{}, {"seed": None}, {"seed": -1}])
def test_the_seed_is_drawn_where_none_is_given(fields: dict[str, object]) -> None:
    assert completion(**fields).sampling.seed != completion(**fields).sampling.seed
    assert 0 <= completion(**fields).sampling.seed < 2**64


@pytest.mark.parametrize(
    ("sent", "held"), [(0, 0), (2**64 - 1, 2**64 - 1), (-2, 2**64 - 2), (-(2**63), 2**63), (2**63 - 1, 2**63 - 1)]
)
def test_any_64_bit_seed_is_accepted(sent: int, held: int) -> None:
    assert completion(seed=sent).sampling.seed == held


@pytest.mark.parametrize(
    ("prompt", "prompts"),
    [
        *(("a", ("a",)), ("", ("",)), (["a"], ("a",)), ([1, 2], ((1, 2),)), ([[1, 2]], ((1, 2),))),
        *((["a", "b"], ("a", "b")), ([[1], [2, 3]], ((1,), (2, 3)))),
    ],
)
def test_a_prompt_is_text_or_token_ids(prompt: object, prompts: tuple[object, ...]) -> None:
    assert completion(prompt=prompt).prompts == prompts


@pytest.mark.parametrize("prompt", [["a", "b\0"], [], [[]], [1, "a"], [[1], "a"], [["a"]], [-1], {}, 3, True, [None]])
def test_other_prompts_are_refused(prompt: object) -> None:
    assert str(refused_completion({"prompt": prompt}).param).startswith("prompt")


@pytest.mark.parametrize("top_k", [-1, 0])
def test_top_k_minus_one_and_zero_are_off(top_k: int) -> None:
    assert completion(top_k=top_k).sampling.top_k == 0


def test_max_completion_tokens_is_max_tokens() -> None:
    assert chat(max_completion_tokens=4).sampling.max_tokens == 4
    assert chat(max_completion_tokens=4, max_tokens=4).sampling.max_tokens == 4
    assert refused_chat(max_completion_tokens=4, max_tokens=5).param == "max_completion_tokens"


def test_an_unknown_field_is_refused_with_the_near_one() -> None:
    assert "Did you mean temperature?" in refused_completion({"temprature": 1}).message
    assert refused_completion({"temprature": 1}).param == "temprature"
    assert "messages[0].content?" in refused_chat(messages=[{"role": "user", "contnt": ""}]).message
    assert "messages[1].content?" in refused_chat(messages=[USER, {"role": "assistant", "contnt": ""}]).message
    error = refused_chat(stream=True, stream_options={"include_usag": True})
    assert error.param == "stream_options.include_usag"
    assert "stream_options.include_usage?" in error.message


@pytest.mark.parametrize(
    ("field", "value", "said"),
    [
        ("temperature", 2.1, "from 0 to 2"),
        ("temperature", -0.1, "from 0 to 2"),
        ("top_p", 0, "above 0 to 1"),
        ("top_p", 1.1, "above 0 to 1"),
        ("top_k", -2, "from -1"),
        ("max_tokens", -1, "from 0"),
        ("max_tokens", 1.0, "an integer"),
        ("max_tokens", True, "an integer"),
        ("seed", 2**64, "64-bit"),
        ("seed", -(2**63) - 1, "64-bit"),
        ("stop", "", "not empty"),
        ("stop", ["x"] * 17, "up to 16"),
        ("stop", ["x"] * 100_000, "up to 16"),
        ("stop", "a\0", "NUL"),
        ("ignore_eos", 1, "true or false"),
        ("stream", "true", "true or false"),
        ("request_id", "a b", "a string"),
        ("request_id", "ab\n", "a string"),
        ("request_id", "x" * 257, "a string"),
    ],
)
def test_a_value_out_of_range_is_refused_by_name_and_range(field: str, value: object, said: str) -> None:
    error = refused_completion({field: value})
    assert error.param == field
    assert said in error.message


def test_a_chat_needs_room_for_a_token_and_a_completion_does_not() -> None:
    assert completion(max_tokens=0).sampling.max_tokens == 0
    assert refused_chat(max_tokens=0).param == "max_tokens"


def test_stream_options_want_a_stream() -> None:
    assert refused_completion({"stream_options": {"include_usage": True}}).param == "stream_options"
    assert completion(stream_options=None).streaming.include_usage is False


def test_continuous_usage_implies_usage() -> None:
    call = completion(stream=True, stream_options={"continuous_usage_stats": True, "include_usage": None})
    assert call.streaming.include_usage


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("best_of", 2), ("suffix", "x"), ("use_beam_search", True)),
        *(("response_format", {"type": "json_object"}), ("guided_json", {}), ("guided_regex", "a")),
        *(("guided_choice", ["a"]), ("guided_grammar", "root ::= x")),
    ],
)
def test_what_is_not_built_is_refused_by_name(field: str, value: object) -> None:
    error = refused_completion({field: value})
    assert error.param == field
    assert "not available" in error.message


@pytest.mark.parametrize(
    ("field", "value"),
    [
        *(("tools", [{}]), ("tool_choice", "required"), ("functions", [{}]), ("function_call", {"name": "f"})),
        *(
            ("modalities", ["text", "audio"]),
            ("audio", {"voice": "alloy", "format": "wav"}),
            ("web_search_options", {}),
        ),
        *(("moderation", {"model": "m"}), ("skip_special_tokens", False), ("use_beam_search", True)),
    ],
)
def test_what_is_not_built_for_chats_is_refused_by_name(field: str, value: object) -> None:
    error = refused_chat(**{field: value})
    assert error.param == field
    assert "not available" in error.message


def test_a_chat_s_logprobs_are_a_switch_and_a_count() -> None:
    assert chat(logprobs=True).reporting.logprobs == 0
    assert chat(logprobs=True, top_logprobs=4).reporting.logprobs == 4
    assert chat(logprobs=False, top_logprobs=0).reporting.logprobs is None
    assert refused_chat(top_logprobs=1).param == "top_logprobs"
    assert refused_chat(logprobs=5).param == "logprobs"


def test_the_answer_s_turn_is_opened_unless_the_last_message_goes_on() -> None:
    assert not chat(continue_final_message=True).chat.add_generation_prompt
    assert not chat(add_generation_prompt=False).chat.add_generation_prompt
    error = refused_chat(continue_final_message=True, add_generation_prompt=True)
    assert error.param == "continue_final_message"


def test_more_tokens_cannot_be_wanted_than_allowed() -> None:
    assert completion(min_tokens=3, max_tokens=3).sampling.min_tokens == 3
    assert refused_completion({"min_tokens": 4, "max_tokens": 3}).param == "min_tokens"


def test_tokenize_takes_a_prompt_or_messages() -> None:
    assert parse_tokenize(b'{"prompt": "a"}').source == "a"
    assert parse_tokenize(b'{"prompt": "a"}').add_special_tokens
    of_chat = parse_tokenize(b'{"messages": [{"role": "user", "content": "a"}]}')
    assert not isinstance(of_chat.source, str)
    assert not of_chat.add_special_tokens
    for body in (b"{}", b'{"prompt": "a", "messages": [{"role": "user", "content": "a"}]}', b'{"prompt": "\\u0000"}'):
        with pytest.raises(BadRequest) as caught:
            parse_tokenize(body)
        assert caught.value.param == "prompt"
    assert parse_detokenize(b'{"tokens": [1, 2]}').tokens == (1, 2)


def test_an_unknown_field_can_be_let_through_and_is_told() -> None:
    told: list[BadRequest] = []
    call = parse_completion(b'{"prompt": "a", "top_pp": 1, "n": 2}', told.append)
    assert call.n == 2
    assert [error.param for error in told] == ["top_pp"]


def test_values_that_ask_for_the_default_are_accepted() -> None:
    completion(n=1, best_of=1, suffix="", echo=False, repetition_penalty=1.0, logit_bias={}, min_p=0, priority=0)
    completion(n=3, best_of=3, skip_special_tokens=True, use_beam_search=False, stream=True, stream_options={})
    chat(logprobs=False, top_logprobs=0, tools=[], tool_choice="none", response_format={"type": "text"})
    chat(modalities=["text"], verbosity="medium", tool_choice="auto", parallel_tool_calls=True, function_call="auto")
    call = chat(stream=True, stream_options={"include_obfuscation": True}, n=2)
    assert not call.streaming.include_usage


def test_the_effort_to_reason_is_the_template_s_to_read() -> None:
    assert chat(reasoning_effort="low").chat.variables == {"reasoning_effort": "low"}
    own = {"reasoning_effort": "high"}
    assert chat(reasoning_effort="low", chat_template_kwargs=own).chat.variables == own
    assert chat().chat.variables == {}


def test_every_field_not_built_is_declared() -> None:
    assert {*CompletionBody.__struct_fields__, *ChatBody.__struct_fields__} >= NOT_YET.keys()


@pytest.mark.parametrize("field", {*CompletionBody.__struct_fields__, *ChatBody.__struct_fields__, "anything"})
def test_null_is_the_same_as_absence(field: str) -> None:
    if field in CompletionBody.__struct_fields__ and field != "prompt":
        completion(**{field: None})
    if field in ChatBody.__struct_fields__ and field != "messages":
        chat(**{field: None})
    if field in ("prompt", "messages"):
        assert refused_completion({"prompt": None}).param == "prompt"
        assert refused_chat(messages=None).param == "messages"


@pytest.mark.parametrize("field", IGNORED)
def test_fields_ignored_on_purpose_take_any_value(field: str) -> None:
    values: list[object] = [1, "x", {"a": []}, True]
    for value in values:
        completion(**{field: value})
        chat(**{field: value})


@pytest.mark.parametrize("body", [b"", b"{", b"[]", b"3", b"null", b'"x"', b"{} {}", b"\xff", b'{"a":', b"[" * 100_000])
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    assert refused_completion(body).param is None


@pytest.mark.parametrize(
    ("value", "param"),
    [
        (b"NaN", "temperature"),
        (b"Infinity", "temperature"),
        (b"-Infinity", "temperature"),
        (b"1e400", "temperature"),
        (b"9" * 5000, "temperature"),
        (b"9" * 5000, "seed"),
        (b'"\\ud800"', "prompt"),
        (b'"\\ud800"', "user"),
        (b'"\xff"', "prompt"),
        (b'"\xff"', "model"),
        (b'"\xff"', "user"),
        (b'["\\udc00"]', "stop"),
    ],
)
def test_values_that_json_does_not_allow_are_refused_by_name(value: bytes, param: str) -> None:
    fields = {"prompt": b'"a"'} | {param: value}
    body = b"{" + b",".join(b'"%s":%s' % (name.encode(), raw) for name, raw in fields.items()) + b"}"
    error = refused_completion(body)
    assert error.param == param
    assert param in error.message


def test_deep_nesting_is_refused() -> None:
    for name in (b"prompt", b"user", b"unknown"):
        deep = b'{"prompt":"a","%s":%s%s}' % (name, b"[" * 100_000, b"]" * 100_000)
        assert "deep" in refused_completion(deep).message


scalars = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text(st.characters(codec=None, exclude_categories=()), max_size=8)
    | st.sampled_from(["text", "user", "assistant", "none", "\0"])
)
keys = st.text(max_size=5) | st.sampled_from(["role", "content", "type", "text", "include_usage", "name", "1"])
anything = st.recursive(scalars, lambda inner: st.lists(inner, max_size=4) | st.dictionaries(keys, inner, max_size=4))
names = st.sampled_from(sorted({*CompletionBody.__struct_fields__, *ChatBody.__struct_fields__, *IGNORED}))


def refusal(parse: Callable[[bytes], object], body: bytes) -> BadRequest | None:
    try:
        parse(body)
    except BadRequest as error:
        return error
    return None


@settings(max_examples=400)
@given(fields=st.dictionaries(names | st.text(max_size=5), anything, max_size=3))
def test_any_json_in_any_field_is_a_call_or_a_refusal_that_names_the_field(fields: dict[str, Any]) -> None:
    for base, parse in ((COMPLETION, parse_completion), (CHAT, parse_chat)):
        error = refusal(parse, json.dumps(base | fields).encode())
        assert error is None or (error.param is not None and error.message)


@given(body=st.binary(max_size=40))
def test_any_bytes_are_a_call_or_a_refusal(body: bytes) -> None:
    for parse in (parse_completion, parse_chat):
        with pytest.raises(BadRequest):
            parse(body)
