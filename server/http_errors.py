"""What is refused for the HTTP of a request, before its meaning is read: a part of the tree in errors.py."""

from collections.abc import Sequence

from server.errors import ApiError


class MethodNotAllowed(ApiError):
    """The path is right, the method is not."""

    status = 405
    type = "invalid_request_error"
    code = "method_not_allowed"

    def __init__(self, method: str, allowed: str) -> None:
        super().__init__(f"{method} is not allowed here, only {allowed}.", headers={"allow": allowed})


class RequestIncomplete(ApiError):
    """The rest of the request did not come in time."""

    status = 408
    type = "timeout_error"
    code = "request_incomplete"
    passing = True

    def __init__(self) -> None:
        super().__init__("The rest of the request did not come in time; send it again, without a pause.")


class TooLarge(ApiError):
    """The body is over the configured limit."""

    status = 413
    type = "invalid_request_error"
    code = "body_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The body is larger than {limit} bytes.")


class UnsupportedMedia(ApiError):
    """The body is not declared as JSON."""

    status = 415
    type = "invalid_request_error"
    code = "unsupported_media_type"

    def __init__(self, got: str) -> None:
        super().__init__(f"The body must be application/json, not {got or 'without a content type'}.")


class UnsupportedCoding(ApiError):
    """The body is packed in a way that is not read here."""

    status = 415
    type = "invalid_request_error"
    code = "unsupported_content_encoding"

    def __init__(self, got: str, known: Sequence[str]) -> None:
        said = f"The body's content-encoding must be one of {', '.join(known)}, or none; it is {got}."
        super().__init__(said, headers={"accept-encoding": ", ".join(known)})


class HeadTooLarge(ApiError):
    """The request's line and headers are over the configured limit."""

    status = 431
    type = "invalid_request_error"
    code = "headers_too_large"

    def __init__(self, limit: int) -> None:
        super().__init__(f"The request's line and headers are larger than {limit} bytes.")
