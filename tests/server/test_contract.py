"""What each parameter means, to a real server with a tiny model: streamed as plain, alone as in company."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest

from tests.server.live import Live, counts

PROMPT = {"prompt": "The class statement", "temperature": 0}
CHAT = {"messages": [{"role": "user", "content": "Say it"}], "temperature": 0}
ENDLESS = {**PROMPT, "ignore_eos": True, "max_tokens": 1900}
USAGE = {"stream": True, "stream_options": {"include_usage": True}}


def events(text: str) -> Iterator[dict[str, Any]]:
    """The JSON events of a whole stream, which ends with [DONE]."""
    data = [line.removeprefix("data: ") for line in text.splitlines() if line.startswith("data: ")]
    assert data[-1] == "[DONE]", data[-1]
    return (json.loads(event) for event in data[:-1])


def complete(live: Live, **fields: object) -> dict[str, Any]:
    response = live.post("/v1/completions", {**PROMPT, **fields})
    assert response.status_code == 200, response.text
    reply: dict[str, Any] = response.json()
    return reply


def text(live: Live, **fields: object) -> str:
    return str(complete(live, **fields)["choices"][0]["text"])


def spelled(live: Live, **fields: object) -> list[str]:
    """The tokens of the first choice."""
    return list(complete(live, logprobs=0, **fields)["choices"][0]["logprobs"]["tokens"])


def joined(text: str, chat: bool) -> tuple[list[dict[str, Any]], Any, Any]:
    """A stream's choices put together as the plain reply has them, its usage, and a chat's prompt logprobs."""
    choices: dict[int, dict[str, Any]] = {}
    usage = beside = None
    for event in events(text):
        beside = event.get("prompt_logprobs", beside)
        usage = event["usage"]
        for part in event["choices"]:
            said = part["delta"].get("content", "") if chat else part["text"]
            whole = choices.setdefault(part["index"], {"text": "", "logprobs": None, "index": part["index"]})
            assert "finish_reason" not in whole, "a choice speaks after its end"
            assert (part["finish_reason"] is None) != (said == ""), "the last chunk of a choice has no text, others do"
            assert not chat or ("role" in part["delta"]) == (not whole.get("begun"))
            whole["begun"] = True
            whole["text"] += said
            whole["logprobs"] = merged(whole["logprobs"], part["logprobs"])
            if "prompt_logprobs" in part:
                whole["prompt_logprobs"] = part["prompt_logprobs"]
            if part["finish_reason"]:
                whole["finish_reason"] = part["finish_reason"]
    for whole in choices.values():
        del whole["begun"]
    return [choices[index] for index in sorted(choices)], usage, beside


def merged(before: dict[str, Any] | None, new: dict[str, Any] | None) -> dict[str, Any] | None:
    if before is None or new is None:
        return before or new
    return {key: before[key] + new[key] if isinstance(new[key], list) else new[key] for key in new}


SAMPLED: dict[str, object] = {"temperature": 1.2, "seed": 5}
OPTIONS: list[dict[str, object]] = [
    {},
    SAMPLED,
    {**SAMPLED, "top_k": 5, "min_p": 0.05, "top_p": 0.9},
    {**SAMPLED, "n": 3, "logprobs": 2},
    {"frequency_penalty": 0.7, "presence_penalty": 0.5, "repetition_penalty": 1.2, "logit_bias": {"40": 3}},
    {"min_tokens": 20, "stop": ["e", "s "]},
    {"stop": ["su b", "zzz"], "include_stop_str_in_output": True},
    {"stop_token_ids": list(range(300)), "logprobs": 1},
    {"stop_token_ids": list(range(300)), "include_stop_str_in_output": True},
    {"ignore_eos": True, "max_tokens": 60, **SAMPLED, "logprobs": 0},
    {"prompt_logprobs": 1, "n": 2, **SAMPLED},
    {"max_tokens": 1},
    {"priority": 3, "timeout": 60, "request_id": "r1"},
]
OF_COMPLETIONS: list[dict[str, object]] = [
    {"echo": True, "logprobs": 1, "max_tokens": 0},
    {"echo": True, "max_tokens": 0},
    {"echo": True, "logprobs": 3, "n": 2, **SAMPLED, "prompt": ["if x", "def f(a):\n", "é😀"], "prompt_logprobs": 1},
    {"echo": True, "logprobs": 1, "prompt": [1, 5, 300, 301]},
    {"prompt": [[5, 6], [7]], "n": 2, **SAMPLED},
    {"max_tokens": 0},
]


@pytest.mark.parametrize("fields", [*OPTIONS, *OF_COMPLETIONS])
def test_a_streamed_completion_is_the_plain_one_in_pieces(tiny: Live, fields: dict[str, object]) -> None:
    body = {**PROMPT, "max_tokens": 30, **fields}
    plain = tiny.post("/v1/completions", body).json()
    choices, usage, _ = joined(tiny.post("/v1/completions", body | USAGE).text, chat=False)
    assert choices == plain["choices"]
    assert counts(usage) == counts(plain["usage"])


@pytest.mark.parametrize("fields", OPTIONS)
def test_a_streamed_chat_is_the_plain_one_in_pieces(tiny: Live, fields: dict[str, object]) -> None:
    if "logprobs" in fields:
        fields = fields | {"logprobs": True, "top_logprobs": fields["logprobs"]}
    body = {**CHAT, "max_tokens": 30, **fields}
    plain = tiny.post("/v1/chat/completions", body).json()
    choices, usage, beside = joined(tiny.post("/v1/chat/completions", body | USAGE).text, chat=True)
    for choice in plain["choices"]:
        choice["text"] = choice.pop("message")["content"]
    assert choices == plain["choices"]
    assert counts(usage) == counts(plain["usage"])
    assert beside == plain.get("prompt_logprobs")


def test_the_same_requests_together_get_what_each_gets_alone(tiny: Live) -> None:
    bodies = [{**PROMPT, "max_tokens": 25, **fields} for fields in [*OPTIONS, *OF_COMPLETIONS]]
    alone = [tiny.post("/v1/completions", body).json()["choices"] for body in bodies]
    with ThreadPoolExecutor(6) as pool:
        together = list(pool.map(lambda body: tiny.post("/v1/completions", body).json()["choices"], bodies))
    for a, b in zip(alone, together, strict=True):
        assert [choice["text"] for choice in a] == [choice["text"] for choice in b]


def test_choices_are_what_separate_requests_with_seed_plus_index_get_in_prompt_major_order(tiny: Live) -> None:
    prompts = ["if x", "def f(a, b, c):"]
    reply = complete(tiny, prompt=prompts, n=3, temperature=1.1, seed=40, max_tokens=15)
    alone = [
        text(tiny, prompt=prompt, temperature=1.1, seed=40 + i, max_tokens=15) for prompt in prompts for i in range(3)
    ]
    assert [choice["text"] for choice in reply["choices"]] == alone
    assert [choice["index"] for choice in reply["choices"]] == list(range(6))
    tokens = [tiny.post("/tokenize", {"prompt": prompt}).json()["count"] for prompt in prompts]
    assert reply["usage"]["prompt_tokens"] == sum(tokens)


def test_the_prompt_of_n_choices_is_computed_once(tiny: Live) -> None:
    before = tiny.metric("vllm:iteration_tokens_total_sum")
    complete(tiny, prompt=[5] * 200, n=8, max_tokens=1)
    tiny.settled()
    assert tiny.metric("vllm:iteration_tokens_total_sum") - before == 200 + 7


def test_an_echo_begins_with_the_prompt_as_it_was_sent(tiny: Live) -> None:
    for prompt in ("The class", "  é😀\n\tx", "<|im_start|>user"):
        whole = text(tiny, prompt=prompt, echo=True, max_tokens=5)
        assert whole == prompt + text(tiny, prompt=prompt, max_tokens=5)


def test_offsets_point_at_each_token_s_text(tiny: Live) -> None:
    choice = complete(tiny, prompt="if x: return", echo=True, logprobs=0, max_tokens=12)["choices"][0]
    logprobs = choice["logprobs"]
    before = ""
    for token, offset in zip(logprobs["tokens"], logprobs["text_offset"], strict=True):
        if not (before + token).startswith("bytes:"):  # broken characters are complete only with the next token
            assert choice["text"].startswith(token, offset)
        before = token if token.startswith("bytes:") else ""


def test_an_end_is_not_chosen_before_min_tokens(tiny: Live) -> None:
    every = {"stop_token_ids": list(range(639)), "logit_bias": {"639": -100}}
    assert complete(tiny, **every)["usage"]["completion_tokens"] == 1
    late = complete(tiny, **every, min_tokens=6)
    assert (late["usage"]["completion_tokens"], late["choices"][0]["finish_reason"]) == (7, "stop")
    whole = text(tiny, max_tokens=20)
    assert complete(tiny, stop=whole[:2], min_tokens=8, max_tokens=20)["usage"]["completion_tokens"] > 8


@pytest.mark.parametrize(
    ("token", "stop"), [(1, "<|im_start|>"), (2, "<|im_end|>"), (2, "<|im_end|><|im_end|>"), (1, ["x", "<|im_start|>"])]
)
def test_a_stop_string_that_is_a_special_token_ends_the_text_there(tiny: Live, token: int, stop: str) -> None:
    forced = {"logit_bias": {str(token): 100}, "ignore_eos": True, "max_tokens": 20, "stop": stop}
    reply = complete(tiny, **forced)
    count = 2 if stop == "<|im_end|><|im_end|>" else 1
    assert (reply["usage"]["completion_tokens"], reply["choices"][0]["finish_reason"]) == (count, "stop")
    assert reply["choices"][0]["text"] == ""
    choices, usage, _ = joined(tiny.post("/v1/completions", {**PROMPT, **forced, **USAGE}).text, chat=False)
    assert (choices[0]["text"], choices[0]["finish_reason"], usage["completion_tokens"]) == ("", "stop", count)
    shown = complete(tiny, **forced, include_stop_str_in_output=True)["choices"][0]["text"]
    assert shown == (stop if isinstance(stop, str) else stop[1])


def test_a_seed_of_minus_one_is_another_each_time(tiny: Live) -> None:
    fields = {"temperature": 1.5, "max_tokens": 30, "ignore_eos": True, "seed": -1}
    assert len({text(tiny, **fields) for _ in range(3)}) > 1


def test_a_bias_bans_and_forces_tokens(tiny: Live) -> None:
    (the,) = tiny.post("/tokenize", {"prompt": " the"}).json()["tokens"]
    assert text(tiny, logit_bias={str(the): 100}, max_tokens=3) == " the" * 3
    warm = {"temperature": 1.5, "seed": 1, "ignore_eos": True, "max_tokens": 400}
    assert " the" in spelled(tiny, **warm, logit_bias={str(the): 2})
    assert " the" not in spelled(tiny, **warm, logit_bias={str(the): -100})


def test_penalties_keep_tokens_from_coming_again(tiny: Live) -> None:
    (the,) = tiny.post("/tokenize", {"prompt": " the"}).json()["tokens"]
    fields = {"logit_bias": {str(the): 3.0}, "max_tokens": 30, "ignore_eos": True}
    often = spelled(tiny, **fields).count(" the")
    assert often > 3
    for penalty in ({"frequency_penalty": 2}, {"presence_penalty": 2}, {"repetition_penalty": 10}):
        assert spelled(tiny, **fields, **penalty).count(" the") < often


def test_a_prompt_over_the_context_is_refused_with_both_numbers_and_a_longer_answer_is_capped(tiny: Live) -> None:
    error = tiny.post("/v1/completions", {"prompt": [5] * 2048}).json()["error"]
    assert error["code"] == "context_length_exceeded"
    assert error["message"].count("2048") == 2
    reply = complete(tiny, prompt=[5] * 2046, max_tokens=500, ignore_eos=True)
    assert (reply["usage"]["completion_tokens"], reply["choices"][0]["finish_reason"]) == (2, "length")


def test_more_choices_than_there_can_ever_be_room_for_are_refused(tiny: Live) -> None:
    assert tiny.post("/v1/completions", {**PROMPT, "n": 41}).json()["error"]["param"] == "n"
    assert tiny.post("/v1/completions", {"prompt": ["a"] * 41}).json()["error"]["param"] == "prompt"
    assert len(complete(tiny, n=40, max_tokens=1)["choices"]) == 40


def test_a_request_s_own_time_ends_it_with_408_or_an_event(tiny: Live) -> None:
    plain = tiny.post("/v1/completions", {**ENDLESS, "timeout": 0.01})
    assert (plain.status_code, plain.json()["error"]["code"]) == (408, "timeout")
    streamed = tiny.post("/v1/completions", {**ENDLESS, "timeout": 0.1, "stream": True})
    last = [line for line in streamed.text.splitlines() if line][-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "timeout"
    tiny.settled()


@pytest.mark.parametrize("named_by", ["header", "body", "reply"])
def test_a_reply_is_cancelled_by_the_request_s_name_or_its_own(tiny: Live, named_by: str) -> None:
    body = {**ENDLESS, "n": 4, "temperature": 1, "stream": True, "request_id": "mine/1" if named_by == "body" else None}
    headers = {"x-request-id": "mine/1"} if named_by == "header" else {}
    url = tiny.url + "/v1/completions"
    with httpx.Client(timeout=30) as client, client.stream("POST", url, json=body, headers=headers) as reply:
        lines = reply.iter_lines()
        first = json.loads(next(lines).removeprefix("data: "))
        name = first["id"] if named_by == "reply" else "mine/1"
        assert named_by == "reply" or reply.headers["x-request-id"] == "mine/1"
        assert tiny.post(f"/v1/requests/{name}/cancel", None).json() == {"id": name, "cancelled": True}
        last = [line for line in lines if line][-1]
    assert json.loads(last.removeprefix("data: "))["error"]["code"] == "request_cancelled"
    tiny.settled()
    gone = tiny.post(f"/v1/requests/{name}/cancel", None)
    assert (gone.status_code, gone.json()["error"]["code"]) == (404, "request_not_found")


def test_a_client_that_leaves_a_reply_of_many_choices_cancels_all_of_them(tiny: Live) -> None:
    before = tiny.metric('vllm:request_success_total{finished_reason="abort"')
    body = {**ENDLESS, "n": 12, "temperature": 1}
    with httpx.Client() as client, pytest.raises(httpx.ReadTimeout):
        client.post(tiny.url + "/v1/completions", json=body, timeout=0.05)
    tiny.settled()
    assert tiny.metric('vllm:request_success_total{finished_reason="abort"') == before + 12
    assert tiny.metric("vllm:num_requests_running") == 0


def test_a_chat_s_last_message_can_go_on(tiny: Live) -> None:
    messages = [{"role": "user", "content": "Hi"}, {"role": "assistant", "content": "The answer is "}]
    body = {"messages": messages, "continue_final_message": True}
    tokens = tiny.post("/tokenize", body).json()["tokens"]
    shown = tiny.post("/detokenize", {"tokens": tokens}).json()["prompt"]
    assert shown.endswith("<|im_start|>assistant\nThe answer is ")


def test_tokens_and_text_are_each_other_s(tiny: Live) -> None:
    reply = tiny.post("/tokenize", {"prompt": "if x: é", "return_token_strs": True}).json()
    assert reply["count"] == len(reply["tokens"]) == len(reply["token_strs"])
    assert reply["max_model_len"] == 2048
    assert tiny.post("/detokenize", {"tokens": reply["tokens"]}).json() == {"prompt": "if x: é"}
    assert tiny.post("/detokenize", {"tokens": [640]}).json()["error"]["param"] == "tokens"


def test_a_silent_stream_shows_the_usage_of_every_chunk_where_asked(tiny: Live) -> None:
    body = {**PROMPT, "max_tokens": 8, "ignore_eos": True, "stream": True}
    reply = tiny.post("/v1/completions", body | {"stream_options": {"continuous_usage_stats": True}})
    counts = [event["usage"]["completion_tokens"] for event in events(reply.text)]
    assert counts == sorted(counts)
    assert counts[-1] == 8


def test_the_load_is_told(tiny: Live) -> None:
    tiny.settled()
    assert tiny.get("/load").json()["in_flight"] == 0
    assert tiny.get("/load").json()["room"] == 40
