"""Unchanged clients against a real server: the openai SDKs for Python and Node, and LangChain."""

import asyncio
import json
import shutil
import subprocess
from pathlib import Path
from typing import Any

import openai
import pytest
from langchain_openai import ChatOpenAI, OpenAI
from openai.types.chat import ChatCompletionMessageParam
from pydantic import SecretStr

from tests.server.live import Live

QUESTION: list[ChatCompletionMessageParam] = [{"role": "user", "content": "Say it"}]
SCRIPT = Path(__file__).with_name("client.mjs")


@pytest.fixture
def client(tiny: Live) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=0)


def test_python_chats_with_choices_logprobs_and_usage(client: openai.OpenAI) -> None:
    reply = client.chat.completions.create(
        model="tiny",
        messages=QUESTION,
        n=3,
        seed=7,
        max_tokens=9,
        logprobs=True,
        top_logprobs=2,
        extra_body={"ignore_eos": True},
    )
    assert [choice.index for choice in reply.choices] == [0, 1, 2]
    assert reply.usage is not None
    assert reply.usage.total_tokens == reply.usage.prompt_tokens + reply.usage.completion_tokens
    for choice in reply.choices:
        assert choice.logprobs is not None
        assert choice.logprobs.content is not None
        assert len(choice.logprobs.content) == 9
        assert all(len(token.top_logprobs) == 2 for token in choice.logprobs.content)


def test_python_streams_what_it_gets_plain(client: openai.OpenAI) -> None:
    asked: dict[str, Any] = {"model": "tiny", "messages": QUESTION, "n": 2, "seed": 7, "max_tokens": 20}
    plain = client.chat.completions.create(**asked)
    texts = {choice.index: "" for choice in plain.choices}
    usage = None
    for chunk in client.chat.completions.create(**asked, stream=True, stream_options={"include_usage": True}):
        usage = chunk.usage or usage
        for choice in chunk.choices:
            texts[choice.index] += choice.delta.content or ""
    assert texts == {choice.index: choice.message.content for choice in plain.choices}
    assert usage == plain.usage


def test_the_stream_helper_of_python_s_sdk_puts_the_chat_together(client: openai.OpenAI) -> None:
    ends = {"stop_token_ids": list(range(600)), "min_tokens": 8}
    asked: dict[str, Any] = {"model": "tiny", "messages": QUESTION, "seed": 7, "logprobs": True, "extra_body": ends}
    with client.chat.completions.stream(**asked) as stream:
        final = stream.get_final_completion()
    plain = client.chat.completions.create(**asked)
    assert final.choices[0].message.content == plain.choices[0].message.content
    assert final.choices[0].logprobs == plain.choices[0].logprobs


def test_python_s_errors_are_exceptions_with_their_parameter(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError) as caught:
        client.completions.create(model="tiny", prompt="a", top_p=3)
    assert (caught.value.param, caught.value.type) == ("top_p", "invalid_request_error")
    with pytest.raises(openai.NotFoundError) as missing:
        client.models.retrieve("other")
    assert missing.value.code == "model_not_found"
    with pytest.raises(openai.APIStatusError) as late:
        client.completions.create(model="tiny", prompt="a", extra_body={"timeout": 0.001, "ignore_eos": True})
    assert late.value.status_code == 408


def test_python_s_retries_do_not_repeat_a_request_that_ran_out_of_its_own_time(tiny: Live) -> None:
    eager = openai.OpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=2)
    with eager, pytest.raises(openai.APIStatusError) as late:
        eager.completions.create(model="tiny", prompt="a", extra_body={"timeout": 0.001, "ignore_eos": True})
    assert late.value.status_code == 408
    assert late.value.response.headers["x-should-retry"] == "false"
    assert late.value.response.request.headers["x-stainless-retry-count"] == "0"


def test_a_name_in_the_body_is_the_request_id_of_python_s_replies_and_errors(client: openai.OpenAI) -> None:
    named: dict[str, Any] = {"model": "tiny", "prompt": "a", "max_tokens": 1, "extra_body": {"request_id": "mine"}}
    reply = client.completions.create(**named)
    assert reply._request_id == "mine"
    for wrong in ({"top_p": 3}, {"model": "other"}, {"prompt": [5] * 3000}):
        with pytest.raises(openai.APIStatusError) as refused:
            client.completions.create(**{**named, **wrong}, extra_headers={"x-request-id": "other"})
        assert refused.value.request_id == "mine"


def test_a_chat_goes_on_with_python_s_own_answers_dumped_whole_and_its_hints_at_their_defaults(
    client: openai.OpenAI,
) -> None:
    hints: dict[str, Any] = {
        "modalities": ["text"],
        "verbosity": "low",
        "reasoning_effort": "minimal",
        "parallel_tool_calls": True,
        "prediction": {"type": "content", "content": "x"},
        "service_tier": "auto",
        "store": False,
        "prompt_cache_retention": "24h",
        "prompt_cache_options": {"mode": "implicit"},
        "max_completion_tokens": 3,
    }
    first = client.chat.completions.create(model="tiny", messages=QUESTION, **hints).choices[0].message
    foreign = {"role": "assistant", "content": None, "reasoning_content": "hm", "id": "m1", "audio": None}
    part = {"type": "text", "text": "And?", "cache_control": {"type": "ephemeral"}}
    history: Any = [*QUESTION, first.model_dump(), foreign, first, {"role": "user", "content": [part]}]
    options: Any = {"include_obfuscation": False, "include_usage": True}
    stream = client.chat.completions.create(
        model="tiny", messages=history, **hints, stream=True, stream_options=options
    )
    assert [chunk.usage for chunk in stream][-1] is not None
    for name in ("moderation", "web_search_options"):
        with pytest.raises(openai.BadRequestError, match="not available") as refused:
            client.chat.completions.create(model="tiny", messages=QUESTION, extra_body={name: {"model": "m"}})
        assert refused.value.param == name


def test_closing_python_s_stream_frees_the_slots(tiny: Live, client: openai.OpenAI) -> None:
    stream = client.completions.create(model="tiny", prompt="a", n=4, stream=True, extra_body={"ignore_eos": True})
    next(iter(stream))
    stream.close()
    tiny.settled()
    assert tiny.metric("vllm:num_requests_running") == 0


def test_python_s_async_client_runs_many_at_once(tiny: Live) -> None:
    async def ask() -> list[str]:
        async with openai.AsyncOpenAI(base_url=f"{tiny.url}/v1", api_key="none", max_retries=0) as client:
            replies = await asyncio.gather(
                *(client.completions.create(model="tiny", prompt="a", seed=i, max_tokens=9) for i in range(16))
            )
            return [reply.choices[0].text for reply in replies]

    assert asyncio.run(ask()) == asyncio.run(ask())


def test_node_s_openai_package_is_served(tiny: Live, tmp_path: Path) -> None:
    node, npm = shutil.which("node"), shutil.which("npm")
    if node is None or npm is None:
        pytest.skip("node or npm is not at hand")
    install = [npm, "install", "--silent", "--no-audit", "--no-fund", "--prefix", str(tmp_path), "openai@7"]
    if (installed := subprocess.run(install, capture_output=True, text=True, check=False)).returncode:
        pytest.skip(f"npm cannot install openai: {installed.stderr[-300:]}")
    shutil.copy(SCRIPT, tmp_path)
    command = [node, str(tmp_path / SCRIPT.name), f"{tiny.url}/v1"]
    told = subprocess.run(command, capture_output=True, text=True, check=False, timeout=60)
    assert told.returncode == 0, told.stderr
    said = json.loads(told.stdout)
    assert said["streamed"] == said["plain"]
    assert said["choices"] == 2
    assert said["logprobs"] == said["usage"]["completion_tokens"] / 2
    assert said["error"] == {"name": "BadRequestError", "param": "temperature", "status": 400}
    tiny.settled()


def test_langchain_chats_completes_and_streams(tiny: Live) -> None:
    key = SecretStr("none")
    chat = ChatOpenAI(base_url=f"{tiny.url}/v1", api_key=key, model="tiny", temperature=0, max_completion_tokens=12)
    answer = chat.invoke("Say it")
    assert "".join(str(chunk.content) for chunk in chat.stream("Say it")) == answer.content
    assert answer.response_metadata["finish_reason"] in ("stop", "length")
    assert answer.response_metadata["token_usage"]["completion_tokens"] <= 12
    scored = chat.bind(logprobs=True).invoke("Say it")
    assert scored.response_metadata["logprobs"]["content"]
    llm = OpenAI(base_url=f"{tiny.url}/v1", api_key=key, model="tiny", temperature=0, max_tokens=8)
    assert llm.invoke("The class") == "".join(llm.stream("The class"))
    assert len(llm.batch(["a", "b", "c"])) == 3
