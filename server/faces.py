"""What the engine raises, and what nobody raised on purpose, as errors that HTTP clients see: by one table."""

from collections.abc import Callable

from scheduler.errors import EngineDown, EngineError, ModelFolderError, RequestFailed, StepFailed
from server.errors import ApiError, Internal, Unavailable


def _impossible(error: Exception) -> ApiError:
    return Internal.for_good(f"The request failed: {error}")


def _internal(error: Exception) -> ApiError:
    return Internal(f"The request failed: {error}")


def _unavailable(error: Exception) -> ApiError:
    return Unavailable(f"The engine takes no requests: {error}")


def _unservable(error: Exception) -> ApiError:
    return Unavailable.for_good(f"The engine takes no requests: {error}")


# The nearest class in the error's ancestry counts.
ENGINE_ERRORS: dict[type[EngineError], Callable[[Exception], ApiError]] = {
    RequestFailed: _impossible,
    StepFailed: _internal,
    EngineDown: _unavailable,
    ModelFolderError: _unservable,
    EngineError: _internal,
}


def api_error(error: BaseException) -> ApiError:
    """The HTTP face of anything raised: an ApiError is its own, the engine's by the table, the rest is Internal."""
    if isinstance(error, ApiError):
        return error
    for ancestor in type(error).__mro__:
        if (face := ENGINE_ERRORS.get(ancestor)) is not None and isinstance(error, EngineError):
            return face(error)
    return Internal("The server met an error of its own; its log says more under this request's id.")
