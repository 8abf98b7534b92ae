"""Every parameter in every wrong JSON type and out of every range, to a real server."""

from typing import Any

import httpx
import pytest

from server.bodies import IGNORED, NOT_YET, ChatBody, CompletionBody
from tests.server.live import Live

# One value of each JSON type; bool is listed apart from number, and a fraction apart from an integer.
VALUES: dict[str, object] = {
    "bool": True,
    "integer": 1,
    "fraction": 0.5,
    "string": "x",
    "list": [],
    "object": {},
}
NUMBER = {"integer", "fraction"}

# Field: the JSON types it takes, and values of those types that are out of range.
COMMON: dict[str, tuple[set[str], list[object]]] = {
    "model": ({"string"}, []),
    "request_id": ({"string"}, ["", "a b", "ä", "x" * 257]),
    "max_tokens": ({"integer"}, [-1]),
    "max_completion_tokens": ({"integer"}, [-1]),
    "min_tokens": ({"integer"}, [-1]),
    "temperature": (NUMBER, [-0.1, 2.1, 1e300, -5]),
    "top_p": (NUMBER, [0, -0.5, 1.01]),
    "top_k": ({"integer"}, [-2]),
    "min_p": (NUMBER, [-0.1, 1.1]),
    "seed": ({"integer"}, [2**64, -(2**63) - 1, 10**400]),
    "stop": ({"string", "list"}, ["", [""], ["a"] * 17, ["a"] * 100_000, [1], [None], "\0", ["a", "b\0"]]),
    "stop_token_ids": ({"list"}, [[-1], ["1"], [640], [1.5], [None]]),
    "ignore_eos": ({"bool"}, []),
    "include_stop_str_in_output": ({"bool"}, []),
    "frequency_penalty": (NUMBER, [-2.1, 2.1]),
    "presence_penalty": (NUMBER, [-2.1, 2.1]),
    "repetition_penalty": (NUMBER, [0, -1, 10.1]),
    "logit_bias": ({"object"}, [{"1": 101}, {"1": -100.5}, {"640": 1}, {"-1": 1}, {"x": 1}, {"1": "1"}, {"1.5": 1}]),
    "n": ({"integer"}, [0, -1, 129]),
    "prompt_logprobs": ({"integer"}, [-1, 21]),
    "stream": ({"bool"}, []),
    "stream_options": (set(), [{"include_usage": True}]),  # only with stream
    "priority": ({"integer"}, [2**31, -(2**31) - 1]),
    "timeout": (NUMBER, [0, -1, 86_401]),
    "cache_salt": ({"string"}, [""]),
}
COMPLETION = COMMON | {
    "prompt": (
        {"string"},
        ["\0", [[]], [-1], [640], [1.5], [True], ["a", 1], [[1], "a"], ["a", "\0"], [["a"]], [None]],
    ),
    "logprobs": ({"integer"}, [-1, 21]),
    "echo": ({"bool"}, []),
    "best_of": ({"integer"}, [0, 2]),
}
CHAT = COMMON | {
    "max_tokens": ({"integer"}, [0, -1]),
    "max_completion_tokens": ({"integer"}, [0, -1]),
    "messages": (set(), [[1], [{}], [{"role": "user"}], [{"role": "x", "content": "a"}], [None]]),
    "logprobs": ({"bool"}, []),
    "top_logprobs": ({"integer"}, [-1, 21]),
    "add_generation_prompt": ({"bool"}, []),
    "continue_final_message": ({"bool"}, []),
    "reasoning_effort": ({"string"}, ["\0"]),
    "chat_template_kwargs": ({"object"}, [{"messages": []}, {"raise_exception": 1}]),
}
ENDPOINTS = {
    "/v1/completions": (COMPLETION, {"prompt": "a", "max_tokens": 1}),
    "/v1/chat/completions": (CHAT, {"messages": [{"role": "user", "content": "a"}], "max_tokens": 1}),
}
CASES = [(path, name) for path, (table, _) in ENDPOINTS.items() for name in table]


@pytest.mark.parametrize(("path", "name"), CASES)
def test_a_field_of_a_wrong_type_or_out_of_range_is_a_400_that_names_it_and_harms_nobody(
    tiny: Live, path: str, name: str
) -> None:
    table, good = ENDPOINTS[path]
    takes, out_of_range = table[name]
    wrong = [value for kind, value in VALUES.items() if kind not in takes] + out_of_range
    with httpx.Client(timeout=30) as client:
        for value in wrong:
            response = client.post(tiny.url + path, json={**good, name: value})
            error: dict[str, Any] = response.json()["error"]
            assert response.status_code == 400, (value, response.text)
            assert error["param"].partition("[")[0].partition(".")[0] == name, (value, error)
            assert error["type"] == "invalid_request_error"
            assert error["message"]
        assert client.post(tiny.url + path, json=good).status_code == 200


def test_the_table_has_every_field() -> None:
    refused = NOT_YET.keys() | IGNORED.keys()
    assert COMPLETION.keys() == set(CompletionBody.__struct_fields__) - refused
    assert CHAT.keys() == set(ChatBody.__struct_fields__) - refused


BODIES = [
    b"",
    b"   ",
    b"{",
    b'{"prompt": "a"',
    b'{"prompt": "a"}}',
    b"[]",
    b"null",
    b'"a"',
    b"\xff\xfe",
    b'{"prompt": "\xff"}',
    b'{"prompt": "\\ud800"}',
    b'{"prompt": "a", "temperature": NaN}',
    b'{"prompt": "a", "temperature": Infinity}',
    b'{"prompt": "a", "temperature": 1e999}',
    b'{"prompt": "a", "seed": ' + b"9" * 10_000 + b"}",
    b'{"prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}",
    b'{"user": ' + b'{"a":' * 100_000 + b"1" + b"}" * 100_000 + b', "prompt": "a"}',
    b'{"prompt": ["' + b'","'.join([b"a"] * 100_000) + b'"]}',
    b'{"prompt": "' + b"a" * 3_000_000 + b'"}',
    b'{"prompt": [' + b"5," * 1_000_000 + b"5]}",
    b'{"prompt": "a", "logit_bias": {' + b",".join(b'"%d": 1' % i for i in range(100_000)) + b"}}",
]


@pytest.mark.parametrize("path", ["/v1/completions", "/v1/chat/completions", "/tokenize", "/detokenize"])
def test_no_body_whatsoever_gets_more_than_a_400_or_harms_the_next(tiny: Live, path: str) -> None:
    with httpx.Client(timeout=60) as client:
        for body in BODIES:
            response = client.post(tiny.url + path, content=body, headers={"content-type": "application/json"})
            assert response.status_code == 400, (body[:60], response.text[:200])
            assert response.json()["error"]["message"]
    assert tiny.post("/v1/completions", {"prompt": "a", "max_tokens": 1}).status_code == 200
