import asyncio
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.render import ChatRenderer, CompletionRenderer, Head, Part, Renderer, Usage
from server.render_logprobs import BATCH
from server.scores import Score, Spelled
from server.stretches import Work, at_once, batches, in_stretches

HEAD = Head("id-1", "tiny", 1_700_000_000)
TOP = tuple(Spelled(token, f"\u2028{token}", b"\x80", -float(token), token + 1) for token in range(20))


def scores(count: int) -> Iterator[Score]:
    return (Score(Spelled(place, "a", b"a", -1.0, 1), TOP, place) for place in range(count))


def test_work_that_lasts_lets_others_have_their_turn() -> None:
    turns = 0

    def until_others_had_two() -> Work[str]:
        for _ in range(10**8):
            if turns == 2:
                return "done"
            yield
        raise AssertionError("nobody else had a turn")

    async def other() -> None:
        nonlocal turns
        while True:
            await asyncio.sleep(0)
            turns = min(turns + 1, 2)

    async def both() -> str:
        task = asyncio.create_task(other())
        try:
            return await in_stretches(until_others_had_two())
        finally:
            task.cancel()

    assert asyncio.run(both()) == "done"


def test_work_that_is_over_at_once_takes_no_turn() -> None:
    turns = 0

    async def other() -> None:
        nonlocal turns
        turns += 1

    async def short() -> bytes:
        asyncio.get_running_loop().create_task(other())
        made = await in_stretches(ChatRenderer(HEAD).chunk(Part(0, "a", first=True)))
        assert turns == 0
        return made

    assert asyncio.run(short()).startswith(b"data: ")


@given(st.lists(st.integers()), st.integers(1, 9))
def test_batches_are_the_items_in_order(items: list[int], size: int) -> None:
    made = list(batches(items, size))
    assert [item for batch in made for item in batch] == items
    assert all(len(batch) == size for batch in made[:-1])


@pytest.mark.parametrize("make", [ChatRenderer, CompletionRenderer])
@pytest.mark.parametrize("plain", [True, False])
@given(count=st.integers(0, 100), of_prompt=st.integers(0, 100))
def test_no_more_than_a_batch_of_scores_is_rendered_without_an_interruption(
    make: type[Renderer], plain: bool, count: int, of_prompt: int
) -> None:
    taken = 0

    def counted(many: Iterator[Score]) -> Iterator[Score]:
        nonlocal taken
        for one in many:
            taken += 1
            yield one

    part = Part(0, "a", None, True, counted(scores(count)), counted(scores(of_prompt)))
    renderer = make(HEAD)
    work = renderer.reply([part], Usage(1, 1)) if plain else renderer.chunk(part)
    before, most, made = 0, 0, b""
    while not made:
        try:
            next(work)
            most, before = max(most, taken - before), taken
        except StopIteration as done:
            made = done.value
    whole = Part(0, "a", None, True, scores(count), scores(of_prompt))
    assert made == at_once(renderer.reply([whole], Usage(1, 1)) if plain else renderer.chunk(whole))
    assert most <= BATCH
    assert taken == count + of_prompt
