import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.errors import BadRequest
from server.large_values import LARGE, MOST_ITEMS, MOST_VALUES
from server.schema import parse_chat, parse_completion, parse_detokenize

LONG = "a" * LARGE
SAY = {"role": "user", "content": "Hello, [world] {\"of\": 'text'}" + "," * 999}


def completion(prompt: object) -> bytes:
    return json.dumps({"prompt": prompt}).encode()


@pytest.mark.parametrize(
    "prompt",
    [
        LONG,
        "," * 2 * MOST_VALUES,
        [LONG, "b", LONG + "c"],
        ["," * 2 * MOST_VALUES],
        list(range(10**5)),
        [list(range(n)) for n in range(1, 500)],
        ["[1,2", '"', "\\"] * 10**5,
    ],
    ids=["text", "commas", "texts", "a text of commas", "ids", "lists of ids", "odd texts"],
)
def test_a_large_prompt_is_the_same_as_a_small_one(prompt: str | list[object]) -> None:
    calls = parse_completion(completion(prompt)).prompts
    if isinstance(prompt, str):
        assert calls == (prompt,)
    elif isinstance(prompt[0], int):
        assert calls == (tuple(prompt),)
    else:
        assert calls == tuple(item if isinstance(item, str) else tuple(item) for item in prompt)  # type: ignore[arg-type]


def test_many_messages_are_all_read() -> None:
    messages = [{**SAY, "name": f"n{place}"} for place in range(2000)]
    call = parse_chat(json.dumps({"messages": messages}, indent=1).encode())
    assert [message.name for message in call.chat.messages] == [f"n{place}" for place in range(2000)]
    assert {message.parts for message in call.chat.messages} == {(SAY["content"],)}


@given(st.integers(0, 1999), st.sampled_from([("content", 5), ("contant", "a"), ("role", "me"), ("content", "\0")]))
def test_what_is_wrong_with_one_of_many_names_it(place: int, wrong: tuple[str, object]) -> None:
    messages: list[object] = [SAY] * 2000
    messages[place] = {**SAY, wrong[0]: wrong[1]}
    with pytest.raises(BadRequest) as refused:
        parse_chat(json.dumps({"messages": messages}).encode())
    assert refused.value.param == f"messages[{place}].{wrong[0]}"
    assert f"messages[{place}]" in refused.value.message


def test_an_unknown_field_of_one_of_many_is_told_with_its_place_and_let_pass() -> None:
    messages: list[object] = [SAY] * 1999 + [{**SAY, "contant": 1}]
    told: list[BadRequest] = []
    call = parse_chat(json.dumps({"messages": messages}).encode(), told.append)
    assert len(call.chat.messages) == 2000
    assert [error.param for error in told] == ["messages[1999].contant"]


@pytest.mark.parametrize(
    ("body", "param"),
    [
        ({"prompt": [[1] * (MOST_VALUES + 1)]}, "prompt"),
        ({"prompt": [1] * (MOST_ITEMS + 1)}, "prompt"),
        ({"prompt": "a", "metadata": [[]] * MOST_VALUES}, "metadata"),
        ({"prompt": "a", "logit_bias": {str(id_): 1 for id_ in range(MOST_VALUES + 1)}}, "logit_bias"),
        ({"prompt": "a", "stop_token_ids": [1] * (MOST_ITEMS + 1)}, "stop_token_ids"),
        ({"prompt": "a", "stop": ["a"] * MOST_VALUES * 2}, "stop"),
    ],
    ids=["one prompt", "ids", "ignored", "bias", "stop ids", "stops"],
)
def test_what_holds_more_than_anybody_needs_is_refused_by_name(body: dict[str, object], param: str) -> None:
    with pytest.raises(BadRequest, match="more values than are taken") as refused:
        parse_completion(json.dumps(body).encode())
    assert refused.value.param == param


def test_many_tokens_are_read() -> None:
    tokens = list(range(MOST_ITEMS))
    assert parse_detokenize(json.dumps({"tokens": tokens}).encode()).tokens == tuple(tokens)
