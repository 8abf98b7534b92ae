import asyncio
import json

import pytest

from scheduler.params import SamplingParams
from scheduler.request import Request
from server import generation
from server.call import Reporting
from server.choice import Asked, Choice
from server.generation import Generation
from server.inflight import Inflight
from server.prompt import Prompt
from server.render import DONE, KEEP_ALIVE, CompletionRenderer, Head
from server.text import StopRule
from server.vocabulary import Vocabulary
from tests.scheduler.fake_model import VOCABULARY, solo
from tests.server.held import HeldModel, bridge_over

PROMPT = (1, 2, 3)


def test_a_stream_without_news_says_that_it_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(generation, "SILENCE", 0.01)
    model, vocabulary = HeldModel(), Vocabulary({i: b"%d " % i for i in range(VOCABULARY)})
    bridge = bridge_over(model, stall=60)
    params = SamplingParams(max_tokens=2, temperature=0.0)
    reporting = Reporting(logprobs=None, prompt_logprobs=None, echo=False)
    asked = Asked(vocabulary, Prompt(PROMPT, None, (), params, StopRule()), reporting)
    choices = [Choice(0, asked, vocabulary, None, first=True)]
    making = Generation(bridge, Inflight(), [Request("a", PROMPT, params)], choices, 3, None, frozenset())

    async def scenario() -> list[bytes]:
        bridge.start()
        await bridge.opened()
        told = list[bytes]()
        async for event in making.events(CompletionRenderer(Head("a", "m", 0)), usage=False, continuous=False):
            told.append(event)
            if told.count(KEEP_ALIVE) == 3:
                model.go_on.set()
        await bridge.drain(30)
        return told

    told = asyncio.run(scenario())
    assert told[:3] == [KEEP_ALIVE] * 3
    assert KEEP_ALIVE.startswith(b":")  # a comment, which readers of events skip
    *chunks, done = [event.removeprefix(b"data: ") for event in told if event != KEEP_ALIVE]
    text = "".join(json.loads(chunk)["choices"][0]["text"] for chunk in chunks)
    assert text.split() == [f"{token}" for token in solo([*PROMPT], 2)]
    assert done == DONE.removeprefix(b"data: ")
