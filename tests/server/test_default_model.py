"""README's main job: `paceline serve` without a model, asked by the real openai client."""

import threading
from collections.abc import Iterator

import openai
import pytest

from tests.server.live import Live, serving

QUESTION = "What is gravity?"
PROMPTS = [
    "The quick brown fox",
    "def fibonacci(n):",
    "Once upon a time, in a land far away,",
    "The three laws of thermodynamics are",
    "Dear Sir or Madam,",
    "SELECT name FROM users WHERE",
    "La tour Eiffel est",
    "Water boils at",
]


@pytest.fixture(scope="module")
def live() -> Iterator[Live]:
    with serving() as server:
        yield server


@pytest.fixture(scope="module")
def client(live: Live) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{live.url}/v1", api_key="none", max_retries=0)


def completion(client: openai.OpenAI, prompt: str, count: int = 32) -> str:
    answer = client.completions.create(model="", prompt=prompt, max_tokens=count, temperature=0)
    return answer.choices[0].text


def test_a_question_is_answered_streamed_and_plain_alike(client: openai.OpenAI) -> None:
    messages: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": QUESTION}]
    model = client.models.list().data[0].id
    plain = client.chat.completions.create(model=model, messages=messages, temperature=0)
    assert plain.choices[0].message.content is not None
    assert "gravity" in plain.choices[0].message.content.lower()
    assert plain.choices[0].finish_reason == "stop"
    stream = client.chat.completions.create(model=model, messages=messages, temperature=0, stream=True)
    deltas = [chunk.choices[0].delta.content or "" for chunk in stream]
    assert "".join(deltas) == plain.choices[0].message.content
    assert len(deltas) > 3


def test_a_silent_request_gets_what_the_model_s_authors_recommend(live: Live, client: openai.OpenAI) -> None:
    messages: list[openai.types.chat.ChatCompletionMessageParam] = [{"role": "user", "content": QUESTION}]
    (model,) = client.models.list().data
    for seed in range(3):
        silent = client.chat.completions.create(model=model.id, messages=messages, seed=seed).choices[0].message.content
        spoken = client.chat.completions.create(
            model=model.id, messages=messages, seed=seed, temperature=0.2, top_p=0.9
        )
        assert silent == spoken.choices[0].message.content
        assert "gravity" in (silent or "").lower()
    told = client.models.retrieve(model.id).model_dump()["generation_config"]
    assert (told["temperature"], told["top_p"], told["origin"]) == (0.2, 0.9, "generation_config.json")
    assert "temperature 0.2, top_p 0.9" in " ".join("".join(live.log).split())


def test_a_request_that_joins_later_speaks_before_the_first_ends_and_changes_nothing(client: openai.OpenAI) -> None:
    first = client.completions.create(model="", prompt=PROMPTS[2], max_tokens=100, temperature=0, stream=True)
    text = [next(first).choices[0].text for _ in range(10)]
    second = client.completions.create(model="", prompt=PROMPTS[1], max_tokens=4, temperature=0, stream=True)
    joined = "".join(chunk.choices[0].text for chunk in second)  # ends while most of the first is to come
    rest = [chunk.choices[0].text for chunk in first]
    assert len(rest) > 20
    assert "".join(text + rest) == completion(client, PROMPTS[2], 100)
    assert joined == completion(client, PROMPTS[1], 4)


def test_eight_at_once_get_what_each_gets_alone(live: Live, client: openai.OpenAI) -> None:
    alone = [completion(client, prompt) for prompt in PROMPTS]
    together: dict[str, str] = {}

    def ask(prompt: str) -> None:
        together[prompt] = completion(client, prompt)

    steps = live.metric("paceline_step_seconds_count")
    threads = [threading.Thread(target=ask, args=(prompt,)) for prompt in PROMPTS]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [together[prompt] for prompt in PROMPTS] == alone
    live.settled()
    assert live.metric("paceline_step_seconds_count") - steps < 8 * 32  # steps were shared


def test_a_client_that_leaves_after_three_chunks_frees_its_slot_within_a_step(
    live: Live, client: openai.OpenAI
) -> None:
    tokens = live.metric("vllm:generation_tokens_total")
    stream = client.completions.create(model="", prompt=PROMPTS[0], max_tokens=2000, temperature=0, stream=True)
    for _ in range(3):
        next(stream)
    stream.close()
    live.settled()
    assert live.metric("vllm:num_requests_running") == 0
    assert live.metric("vllm:generation_tokens_total") - tokens < 1000


def test_errors_arrive_as_the_client_s_exceptions(client: openai.OpenAI) -> None:
    with pytest.raises(openai.NotFoundError):
        client.completions.create(model="other", prompt="a")
    with pytest.raises(openai.BadRequestError, match="temperature"):
        client.completions.create(model="", prompt="a", temperature=3)
    with pytest.raises(openai.BadRequestError, match="context"):
        client.completions.create(model="", prompt=[5] * 9000)
