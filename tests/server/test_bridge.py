import asyncio

import pytest

from scheduler.errors import EngineDown
from scheduler.params import SamplingParams
from scheduler.request import Request
from tests.scheduler.fake_model import solo
from tests.server.held import HeldModel, bridge_over


class Rejections:
    """Remembers why requests were turned away."""

    def __init__(self) -> None:
        self.reasons: list[str] = []

    def submitted(self, request: Request) -> None:
        """Not of interest."""

    def step(self, report: object) -> None:
        """Not of interest."""

    def rejected(self, reason: str) -> None:
        self.reasons.append(reason)


def test_a_scheduler_that_stands_still_is_stalled_takes_nobody_and_recovers() -> None:
    model, watcher = HeldModel(), Rejections()
    bridge = bridge_over(model, 0.0, [watcher])

    def request(id_: str) -> Request:
        return Request(id_, (1, 2, 3), SamplingParams(max_tokens=5, temperature=0.0))

    async def scenario() -> list[int]:
        bridge.start()
        await bridge.opened()
        assert bridge.state == "ready"
        stream = bridge.submit([request("held")])
        await asyncio.to_thread(model.entered.wait, 30)
        assert bridge.state == "stalled"
        with pytest.raises(EngineDown, match="no progress"):
            bridge.submit([request("late")])
        model.go_on.set()
        tokens: list[int] = []
        finish = None
        while finish is None:
            for update in await stream.next():
                tokens += update.tokens
                finish = update.finish
        assert bridge.state == "ready"
        await bridge.drain(30)
        return tokens

    assert asyncio.run(scenario()) == solo([1, 2, 3], 5)
    assert watcher.reasons == ["stalled"]
