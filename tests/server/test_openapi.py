"""The API's description: true to what is parsed, and what a fuzzer makes of it."""

import json
from typing import Any

import pytest
import schemathesis
from hypothesis import HealthCheck, Phase, settings
from schemathesis.checks import not_a_server_error

from server.bodies import IGNORED, NOT_YET, ChatBody, CompletionBody
from server.message_bodies import MESSAGE_IGNORED, PART_IGNORED
from server.openapi import openapi_document
from tests.server.live import Live

DOCUMENT: dict[str, Any] = json.loads(openapi_document())
SCHEMAS = DOCUMENT["components"]["schemas"]
schema = schemathesis.openapi.from_dict(DOCUMENT)


@pytest.mark.parametrize("shape", [CompletionBody, ChatBody])
def test_every_field_is_told_but_those_that_are_refused(shape: type[Any]) -> None:
    told = SCHEMAS[shape.__name__]
    assert set(told["properties"]) == (set(shape.__struct_fields__) - NOT_YET.keys()) | IGNORED.keys()
    assert all(field["description"] for field in told["properties"].values())
    assert not told["additionalProperties"]


def test_what_is_ignored_in_messages_is_told() -> None:
    message, part = SCHEMAS["MessageBody"], SCHEMAS["TextPart"]
    assert message["properties"].keys() > MESSAGE_IGNORED.keys()
    assert message["properties"]["reasoning_content"]["description"].startswith("Ignored: ")
    assert message.get("additionalProperties", True)
    assert part["properties"].keys() == {"type", "text", *PART_IGNORED}
    assert not part["additionalProperties"]


def test_the_server_tells_the_document_and_answers_every_path_in_it(tiny: Live) -> None:
    assert tiny.get("/openapi.json").json() == DOCUMENT
    for path, operations in DOCUMENT["paths"].items():
        (method,) = operations
        answer = tiny.get(path) if method == "get" else tiny.post(path, {})
        assert answer.status_code in ((200, 404) if "{id}" in path else (200, 400)), path


def valid_limits(body: dict[str, Any]) -> bool:
    """Whether the body limits its answer, or tries something that is no limit."""
    limits = [body.get(name) for name in ("max_tokens", "max_completion_tokens")]
    return any(limit is not None and (not isinstance(limit, int) or limit < 3) for limit in limits)


@schema.parametrize()
@settings(
    max_examples=25,
    deadline=None,
    derandomize=True,
    phases=[Phase.explicit, Phase.generate],
    suppress_health_check=list(HealthCheck),
)
def test_nothing_that_the_schema_allows_or_forbids_is_the_server_s_fault(
    case: schemathesis.Case[Any], tiny: Live
) -> None:
    if isinstance(case.body, dict) and not valid_limits(case.body):
        case.body["max_tokens"] = 2  # or every good one fills the context
    case.call_and_validate(base_url=tiny.url, checks=[not_a_server_error], timeout=60)
