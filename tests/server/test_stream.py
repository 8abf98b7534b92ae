import asyncio

from scheduler.errors import StepFailed
from scheduler.request import Event, Finish
from server.stream import Stream


def told(*events: Event) -> list[tuple[int, list[int], Finish | None]]:
    """What a reader hears who looks after all of it: index, tokens, finish."""
    stream = Stream(["a", "b"])
    for event in events:
        stream.put(event)
    return [(u.index, u.tokens, u.finish) for u in asyncio.run(stream.next())]


def test_a_late_reader_hears_all_of_a_request_at_once() -> None:
    assert told(Event("b", (1,)), Event("a", (2,)), Event("b", (3,), finish=Finish.STOP)) == [
        (0, [2], None),
        (1, [1, 3], Finish.STOP),
    ]


def test_what_came_before_a_failure_is_heard_before_it() -> None:
    error = StepFailed("it went wrong")
    failures = [Event(id_, finish=Finish.FAILED, error=error) for id_ in "ab"]
    assert told(Event("a", (1,)), Event("b", (2,)), *failures) == [
        (0, [1], None),
        (1, [2], None),
        (0, [], Finish.FAILED),
        (1, [], Finish.FAILED),
    ]
