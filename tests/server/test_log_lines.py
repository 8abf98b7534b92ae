import json
import logging
import signal
from pathlib import Path

import httpx
import pytest
from hypothesis import given
from hypothesis import strategies as st

from server.log_lines import json_line, printable
from tests.conftest import model_folder
from tests.server import test_logs
from tests.server.live import serving
from tests.server.test_logs import logged

restored = test_logs.restored

ANYTHING = st.text(st.characters(exclude_categories=[]))
FORGED = "x\n12:00:00 [info] request status=200\r\u2028\u0085\x1b[2K\x9b\u202e"


@given(ANYTHING)
def test_what_does_not_print_is_escaped(text: str) -> None:
    assert printable(text).isprintable()


@given(st.text(st.characters(codec="utf-8")).map(lambda text: "".join(char for char in text if char.isprintable())))
def test_what_prints_stays_as_it_is(text: str) -> None:
    assert printable(text) == text
    assert printable(text + "\n" + text) == text + "\\n" + text


@given(st.dictionaries(st.text(), ANYTHING))
def test_a_json_line_is_one_line_of_what_prints_and_says_the_same(facts: dict[str, str]) -> None:
    line = json_line(facts)
    assert line.isprintable()
    assert json.loads(line) == facts


@pytest.mark.usefixtures("restored")
@pytest.mark.parametrize("form", ["text", "json"])
@pytest.mark.parametrize("how", ["the message", "a fact", "an exception"])
def test_nothing_that_is_logged_can_look_like_another_line(form: str, how: str) -> None:
    stream = logged(form)
    logger = logging.getLogger("paceline.server")
    if how == "the message":
        logger.warning("ignored: %s", FORGED)
    elif how == "a fact":
        logger.warning("request", extra={"facts": {"path": FORGED}})
    else:
        logger.error("it failed", exc_info=ValueError(FORGED))
    first, *others = stream.getvalue().rstrip("\n").split("\n")
    assert first.isprintable()
    if form == "json":
        assert FORGED in str(list(json.loads(first).values())) or "\\n" in first
    assert all(line.startswith("    ") and line.isprintable() for line in others)
    assert bool(others) == (how == "an exception" and form == "text")


@pytest.mark.parametrize("form", ["text", "json"])
def test_an_unknown_field_cannot_forge_a_line(tmp_path: Path, form: str) -> None:
    arguments = ["--cache-dir", str(tmp_path), "--unknown-fields", "warn", "--log-format", form]
    with serving(str(model_folder("llama-int4")), *arguments) as server:
        body = {"prompt": "a", "max_tokens": 1, FORGED: 1}
        assert server.post("/v1/completions", body).status_code == 200
        assert httpx.post(server.url + "/v1/completions", content=b"{", headers={"content-type": FORGED[:1]}).is_error
        _, log = server.end(signal.SIGTERM)
    (line,) = [line for line in log.split("\n") if "ignored" in line]
    assert line.isprintable()
    assert not any(line.startswith("12:00:00") for line in log.splitlines())
