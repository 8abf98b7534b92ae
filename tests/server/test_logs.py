import io
import json
import logging
import warnings
from collections.abc import Iterator

import pytest

from scheduler.request import Finish, Summary
from server.journal import log_request
from server.logs import configure
from server.record import CURRENT, Record


@pytest.fixture
def restored() -> Iterator[None]:
    """Leaves logging as it was."""
    root = logging.getLogger()
    names = ("", "paceline", "paceline.requests", "scheduler", "uvicorn")
    before = root.handlers[:], {name: logging.getLogger(name).level for name in names}
    yield
    root.handlers[:] = before[0]
    for name, level in before[1].items():
        logging.getLogger(name).setLevel(level)
    logging.captureWarnings(capture=False)


def logged(form: str, *parts: str, level: str = "info") -> io.StringIO:
    stream = io.StringIO()
    configure(level, form, parts, stream)
    return stream


def finished(status: int = 200) -> Record:
    record = Record("mine", "POST", "/v1/completions", client="192.0.2.7", key="anna", status=status, arrived=10.0)
    record.done = [
        (Finish.STOP, Summary(10.0, 10.5, 11.0, 13.0, prompt_tokens=7, new_tokens=5, cached_tokens=3)),
        (Finish.LENGTH, Summary(10.0, 10.6, 11.5, 15.0, prompt_tokens=7, new_tokens=5)),
    ]
    record.ended = 15.25
    return record


@pytest.mark.usefixtures("restored")
def test_the_choices_of_a_request_are_one_line_with_their_sums() -> None:
    stream = logged("json")
    log_request(finished())
    line = json.loads(stream.getvalue())
    assert {name: line[name] for name in ("event", "level", "request_id", "key", "client", "status")} == {
        "event": "request",
        "level": "info",
        "request_id": "mine",
        "key": "anna",
        "client": "192.0.2.7",
        "status": 200,
    }
    assert (line["prompt_tokens"], line["cached_tokens"], line["new_tokens"]) == (14, 3, 10)
    assert (line["queue_s"], line["ttft_s"], line["tokens_per_s"], line["seconds"]) == (0.5, 1.0, 2.0, 5.25)
    assert line["finish"] == "length+stop"


@pytest.mark.usefixtures("restored")
def test_text_lines_are_for_people_and_carry_the_same_facts() -> None:
    stream = logged("text")
    log_request(finished())
    (line,) = stream.getvalue().splitlines()
    assert "request_id=mine" in line
    assert "ttft_s=1.0" in line
    assert "\x1b" not in line  # no colours where there is no terminal


@pytest.mark.usefixtures("restored")
def test_what_succeeds_without_generating_is_for_debugging_and_faults_of_ours_are_warnings() -> None:
    stream = logged("json")
    log_request(Record("a", "GET", "/health", status=200, ended=1e9))
    log_request(Record("b", "GET", "/v1/nothing", status=404, ended=1e9))
    log_request(Record("c", "POST", "/v1/completions", status=503, ended=1e9))
    log_request(gone := finished(status=0))
    assert json.loads(stream.getvalue().splitlines()[-1])["status"] == 499, gone
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    assert [(line["request_id"], line["level"]) for line in lines] == [
        ("b", "info"),
        ("c", "warning"),
        ("mine", "info"),
    ]


@pytest.mark.usefixtures("restored")
def test_parts_have_levels_of_their_own_and_other_libraries_are_heard_from_warning_on() -> None:
    stream = logged("json", "requests=warning", "uvicorn=info")
    log_request(finished())
    for name in ("onnx_ir.passes", "uvicorn.error", "paceline.server", "scheduler.model"):
        logging.getLogger(name).info("hello")
        logging.getLogger(name).warning("beware")
    warnings.warn("old", DeprecationWarning, stacklevel=1)
    lines = [json.loads(line) for line in stream.getvalue().splitlines()]
    said: dict[str, list[str]] = {line["logger"]: [] for line in lines}
    for line in lines:
        said[line["logger"]].append(line["level"])
    assert said["onnx_ir.passes"] == ["warning"]
    for name in ("uvicorn.error", "paceline.server", "scheduler.model"):
        assert said[name] == ["info", "warning"]
    assert said["py.warnings"] == ["warning"]
    assert "paceline.requests" not in said


@pytest.mark.usefixtures("restored")
def test_a_line_that_is_written_for_a_request_has_its_id_and_a_traceback_its_frames() -> None:
    stream = logged("json")
    token = CURRENT.set(finished())
    try:
        raise ValueError("deep inside")
    except ValueError:
        logging.getLogger("paceline.server").exception("it went %s", "wrong")
    finally:
        CURRENT.reset(token)
    line = json.loads(stream.getvalue())
    assert (line["request_id"], line["event"]) == ("mine", "it went wrong")
    assert line["exception"][0]["exc_value"] == "deep inside"


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("form", ["text", "json"])
def test_a_traceback_shows_no_variables(form: str) -> None:
    stream = logged(form)
    prompt = "what somebody " + "asked"
    try:
        int(prompt[:0])
    except ValueError:
        logging.getLogger("paceline.server").exception("it went wrong")
    assert "ValueError" in stream.getvalue()
    assert prompt not in stream.getvalue()
