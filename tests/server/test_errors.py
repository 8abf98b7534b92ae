import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler import errors as engine
from server import errors, http_errors
from server.errors import ApiError, body, event
from server.faces import api_error

ONE_OF_EACH = [
    errors.BadRequest("no", param="top_p", code="invalid_value"),
    errors.ContextLengthExceeded(9, 8, param="prompt"),
    errors.Unauthorized(given=True),
    errors.NotFound("nothing here"),
    errors.NotFound.model("x", "y"),
    http_errors.MethodNotAllowed("GET", "POST"),
    errors.RequestTimeout("over"),
    http_errors.TooLarge(16),
    http_errors.RequestIncomplete(),
    http_errors.UnsupportedMedia("text/plain"),
    http_errors.UnsupportedCoding("br", ["gzip"]),
    errors.Cancelled("over"),
    errors.QueueFull(2.1),
    http_errors.HeadTooLarge(16),
    errors.Internal("ours"),
    errors.Unavailable("loading"),
]


def subclasses(kind: type[ApiError]) -> set[type[ApiError]]:
    return {kind}.union(*(subclasses(sub) for sub in kind.__subclasses__()))


def test_the_list_has_every_class_of_the_tree() -> None:
    assert {type(error) for error in ONE_OF_EACH} == subclasses(ApiError) - {ApiError}


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda error: type(error).__name__)
def test_the_body_has_the_four_fields_of_openai_and_the_event_is_the_same_object(error: ApiError) -> None:
    object_ = json.loads(body(error))
    assert object_ == {
        "error": {"message": error.message, "type": error.type, "param": error.param, "code": error.code}
    }
    assert event(error) == b"data: " + body(error) + b"\n\n"


@pytest.mark.parametrize(
    ("error", "status", "code"),
    [
        (errors.BadRequest("x"), 400, None),
        (errors.ContextLengthExceeded(9, 8, param="prompt"), 400, "context_length_exceeded"),
        (errors.NotFound.model("x", "y"), 404, "model_not_found"),
        (http_errors.MethodNotAllowed("GET", "POST"), 405, "method_not_allowed"),
        (errors.RequestTimeout("x"), 408, "timeout"),
        (http_errors.TooLarge(1), 413, "body_too_large"),
        (http_errors.UnsupportedMedia(""), 415, "unsupported_media_type"),
        (errors.QueueFull(1), 429, "queue_full"),
        (errors.Internal("x"), 500, "internal_error"),
        (errors.Unavailable("x"), 503, "service_unavailable"),
    ],
)
def test_each_error_has_its_status_and_code(error: ApiError, status: int, code: str | None) -> None:
    assert (error.status, error.code) == (status, code)


def test_headers_say_what_may_be_done_instead() -> None:
    assert errors.QueueFull(2.1).headers == {"retry-after": "3"}
    assert errors.QueueFull(0).headers == {"retry-after": "1"}
    assert http_errors.MethodNotAllowed("GET", "POST").headers == {"allow": "POST", "x-should-retry": "false"}


@pytest.mark.parametrize("error", ONE_OF_EACH, ids=lambda error: type(error).__name__)
def test_only_what_may_pass_is_worth_another_try(error: ApiError) -> None:
    kinds = (errors.QueueFull, errors.Internal, errors.Unavailable, http_errors.RequestIncomplete)
    passing = isinstance(error, kinds)
    assert ("x-should-retry" in error.headers) != passing


@pytest.mark.parametrize(
    ("raised", "again"),
    [
        (engine.RequestFailed("its logits are not finite"), False),
        (engine.StepFailed("x"), True),
        (engine.EngineDown("loading"), True),
        (engine.ModelFolderError("x"), False),
        (ZeroDivisionError("x"), True),
    ],
)
def test_what_the_engine_cannot_mend_is_not_tried_again(raised: Exception, again: bool) -> None:
    assert (api_error(raised).headers.get("x-should-retry") != "false") == again


def test_a_prompt_too_long_names_both_numbers() -> None:
    assert "9 tokens" in errors.ContextLengthExceeded(9, 8, param="prompt").message
    assert "context is 8" in errors.ContextLengthExceeded(9, 8, param="prompt").message
    assert "at least 9" in errors.ContextLengthExceeded(9, 8, param="prompt", exact=False).message


@pytest.mark.parametrize(
    ("raised", "status"),
    [
        (engine.RequestFailed("x"), 500),
        (engine.StepFailed("x"), 500),
        (engine.EngineDown("x"), 503),
        (engine.ModelFolderError("x"), 503),
        (engine.EngineError("x"), 500),
        (ZeroDivisionError("secret"), 500),
    ],
)
def test_what_the_engine_raises_has_a_face(raised: Exception, status: int) -> None:
    assert api_error(raised).status == status


def test_a_fault_of_ours_does_not_tell_about_our_insides() -> None:
    assert "secret" not in api_error(ZeroDivisionError("secret")).message


def test_an_api_error_is_its_own_face() -> None:
    error = errors.BadRequest("x")
    assert api_error(error) is error


any_text = st.text(st.characters(codec=None, exclude_categories=()))


@given(message=any_text, param=st.none() | any_text)
def test_any_message_makes_one_line_of_valid_utf8_json(message: str, param: str | None) -> None:
    made = body(errors.BadRequest(message, param=param))
    assert json.loads(made.decode())["error"]["message"] == message.encode(errors="replace").decode()
    assert b"\n" not in made
