"""Errors as HTTP clients see them: `{"error": {"message", "type", "param", "code"}}`, as a body or as an SSE event.

    ApiError
    |-- BadRequest              400  malformed or impossible; `param` names the field
    |   `-- ContextLengthExceeded    the prompt leaves no room in the context
    |-- Unauthorized            401  no key, or not a known one
    |-- NotFound                404  no such path or model
    |-- MethodNotAllowed        405  with `Allow`
    |-- RequestTimeout          408  the request's own timeout
    |-- RequestIncomplete       408  the client stopped in the middle of what it sends
    |-- TooLarge                413  the body is over the limit
    |-- UnsupportedMedia        415  not JSON
    |-- UnsupportedCoding       415  packed in a way not known here; `Accept-Encoding` says which are
    |-- Cancelled               499  cancelled by another request; clients do not try again
    |-- QueueFull               429  with `Retry-After`
    |-- HeadTooLarge            431  the request's line and headers are over the limit
    |-- Internal                500  a fault of ours, never for user input
    `-- Unavailable             503  loading, draining or down, with the reason

Where the same request sent again would fare no better, the answer says `x-should-retry: false`: OpenAI's clients heed
it, and would try a 408 or a 500 twice more.

Those about HTTP itself are in `server.http_errors`; `server.faces` maps whatever else was raised to one of these.
"""

import math
from collections.abc import Mapping
from typing import ClassVar, Self

import msgspec

from server import sse

SHOULD_RETRY = "x-should-retry"


class ApiError(Exception):
    """An error with its HTTP face. `type` and `code` follow OpenAI's where it has one.

    `passing` is whether the same request may fare better later.
    """

    status: ClassVar[int] = 500
    type: ClassVar[str] = "server_error"
    code: str | None = None
    passing: bool = False

    def __init__(self, message: str, *, param: str | None = None, headers: Mapping[str, str] | None = None) -> None:
        super().__init__(message)
        self.message = _encodable(message)
        self.param = None if param is None else _encodable(param)
        self._headers = dict(headers or {})

    @property
    def headers(self) -> dict[str, str]:
        """What the answer's head says of it."""
        return self._headers if self.passing else {**self._headers, SHOULD_RETRY: "false"}

    @classmethod
    def for_good(cls, message: str) -> Self:
        """One of a kind that mostly passes, but will not this time."""
        error = cls(message)
        error.passing = False
        return error


class BadRequest(ApiError):
    """The request is malformed or asks for what cannot be done."""

    status = 400
    type = "invalid_request_error"

    def __init__(self, message: str, *, param: str | None = None, code: str | None = None) -> None:
        super().__init__(message, param=param)
        self.code = code


class ContextLengthExceeded(BadRequest):
    """The prompt leaves no room for a token; `exact` is False where counting stopped early."""

    def __init__(self, prompt: int, context: int, *, param: str, exact: bool = True) -> None:
        super().__init__(
            f"The prompt has {'' if exact else 'at least '}{prompt} tokens, and the model's context is {context}: "
            "it must be shorter, so that there is room for an answer.",
            param=param,
            code="context_length_exceeded",
        )


class Unauthorized(ApiError):
    """The request came without a key, or with one that is not known."""

    status = 401
    type = "invalid_request_error"
    code = "invalid_api_key"

    def __init__(self, *, given: bool) -> None:
        super().__init__(
            "The API key is not known here." if given else "Send an API key, as in `Authorization: Bearer <key>`.",
            headers={"www-authenticate": "Bearer"},
        )


class NotFound(ApiError):
    """No such path."""

    status = 404
    type = "invalid_request_error"
    code = "not_found"

    @classmethod
    def request(cls, name: str) -> "NotFound":
        """No request of that name is in flight."""
        error = cls(f"No request {name!r} is in flight.")
        error.code = "request_not_found"
        return error

    @classmethod
    def model(cls, name: str, served: str) -> "NotFound":
        """The request names a model that is not served."""
        error = cls(f"The model {name!r} does not exist here; this server serves {served!r}.", param="model")
        error.code = "model_not_found"
        return error


class RequestTimeout(ApiError):
    """The time the request gave itself is over."""

    status = 408
    type = "timeout_error"
    code = "timeout"


class Cancelled(ApiError):
    """Another request cancelled this one. The status is nginx's, of a request that nobody waits for."""

    status = 499
    type = "request_cancelled"
    code = "request_cancelled"


class QueueFull(ApiError):
    """No room in the queue; `retry_after` is in seconds."""

    status = 429
    type = "rate_limit_error"
    code = "queue_full"
    passing = True

    def __init__(self, retry_after: float) -> None:
        seconds = max(1, math.ceil(retry_after))
        super().__init__(
            f"The queue is full; try again in {seconds} seconds.",
            headers={"retry-after": str(seconds)},
        )


class Internal(ApiError):
    """A fault of ours. The message tells nothing about our insides; the log does."""

    code = "internal_error"
    passing = True

    def __init__(self, message: str) -> None:
        super().__init__(message, headers={"connection": "close"})  # who knows what state it is in


class Unavailable(ApiError):
    """The server cannot take requests now; the message says why."""

    status = 503
    type = "service_unavailable"
    code = "service_unavailable"
    passing = True


def _encodable(text: str) -> str:
    """The text without lone surrogates, which a path or a header may bring in and UTF-8 cannot carry."""
    return text.encode(errors="replace").decode()


def body(error: ApiError) -> bytes:
    """The JSON body."""
    return msgspec.json.encode(
        {"error": {"message": error.message, "type": error.type, "param": error.param, "code": error.code}}
    )


def event(error: ApiError) -> bytes:
    """The SSE event that ends a stream which has begun; no `[DONE]` follows it."""
    return sse.event(body(error))
