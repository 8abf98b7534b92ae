"""Follows every HTTP request to its end and tells the listeners of it once. Knows no threads.

A request is over when its reply is sent and the scheduler has let go of its generations, whichever comes last.
"""

import logging
from collections.abc import Callable, Sequence
from time import perf_counter

from starlette.datastructures import Headers
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from scheduler.engine import StepReport
from scheduler.request import Request
from server.record import CURRENT, Record, totals

REQUESTS = logging.getLogger("paceline.requests")
GONE = 499
"""What nginx, too, calls the status of a request whose client left before there was one."""

Listener = Callable[[Record], None]


class Journal:
    """Watches the bridge for the ends of generations, and the application for those of replies.

    Args:
        listeners: each is called once for every finished request.
    """

    def __init__(self, listeners: Sequence[Listener]) -> None:
        self._listeners = listeners
        self._records: dict[str, Record] = {}  # of the generations in flight

    def submitted(self, request: Request) -> None:
        """A generation begins, on behalf of the task's request."""
        if (record := CURRENT.get()) is not None:
            record.open.add(request.id)
            self._records[request.id] = record

    def step(self, report: StepReport) -> None:
        """Note the generations that ended."""
        for event in report.events:
            if event.finish is None or (record := self._records.pop(event.id, None)) is None:
                continue
            record.open.discard(event.id)
            if event.summary is not None:
                record.done.append((event.finish, event.summary))
            self._tell(record)

    def rejected(self, reason: str) -> None:
        """The reply's status says it."""

    def replied(self, record: Record) -> None:
        """The reply is sent, or its client has gone."""
        record.ended = perf_counter()
        self._tell(record)

    def _tell(self, record: Record) -> None:
        if record.complete:
            for listener in self._listeners:
                listener(record)


class Recorded:
    """ASGI middleware: opens the record of a request and closes it. Wants `request_id` in the scope's state."""

    def __init__(self, app: ASGIApp, journal: Journal) -> None:
        self._app = app
        self._journal = journal

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass the request on."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        record = Record(
            id=scope["state"]["request_id"],
            method=scope["method"],
            path=_in_a_line(scope["path"]),
            client=_in_a_line((scope.get("client") or ("",))[0]),
            traceparent=Headers(scope=scope).get("traceparent", ""),
        )

        async def send_noted(message: Message) -> None:
            if message["type"] == "http.response.start":
                record.status = message["status"]
            await send(message)

        token = CURRENT.set(record)
        try:
            await self._app(scope, receive, send_noted)
        finally:
            CURRENT.reset(token)
            self._journal.replied(record)


def _in_a_line(text: str) -> str:
    """What a client sent, as it can be logged: neither a line's end nor a terminal's commands are left in it."""
    return text.encode("unicode_escape").decode()


def log_request(record: Record) -> None:
    """One line for a finished request: never its text. What generated nothing is of interest where it failed."""
    facts: dict[str, object] = {"request_id": record.id, "path": record.path, "status": record.status or GONE}
    facts |= {name: value for name in ("key", "client", "error") if (value := getattr(record, name))}
    if record.done:
        t = totals([summary for _, summary in record.done])
        facts |= {"prompt_tokens": t.prompt, "cached_tokens": t.cached, "new_tokens": t.new}
        facts["queue_s"] = round(t.queue, 4)
        facts |= {} if t.ttft is None else {"ttft_s": round(t.ttft, 4)}
        facts |= {} if t.rate is None else {"tokens_per_s": round(t.rate, 1)}
        facts["finish"] = record.finish
    facts["seconds"] = round((record.ended or record.arrived) - record.arrived, 4)
    REQUESTS.log(_level(record), "request", extra={"facts": facts})


def _level(record: Record) -> int:
    if record.status >= 500:
        return logging.WARNING
    return logging.INFO if record.done or record.status >= 400 else logging.DEBUG
