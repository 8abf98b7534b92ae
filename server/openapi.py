"""`/openapi.json`, made of the declarations that requests are parsed by. Knows no HTTP."""

from collections.abc import Mapping
from functools import cache
from importlib.metadata import version
from typing import Any

import msgspec
from msgspec import Struct

from server.bodies import IGNORED, NOT_YET, ChatBody, CompletionBody, DetokenizeBody, TokenizeBody
from server.message_bodies import (
    MESSAGE_IGNORED,
    PART_IGNORED,
    InputTextPart,
    OutputTextPart,
    RefusalPart,
    TextPart,
)

REF = "#/components/schemas/{name}"
BODIES: dict[str, tuple[type[Struct], str]] = {
    "/v1/completions": (CompletionBody, "Complete prompts."),
    "/v1/chat/completions": (ChatBody, "Answer a chat."),
    "/tokenize": (TokenizeBody, "The tokens of a text or a chat."),
    "/detokenize": (DetokenizeBody, "The text of tokens."),
}
PARTS = (TextPart, InputTextPart, OutputTextPart, RefusalPart)
INSIDE = {"MessageBody": MESSAGE_IGNORED} | {part.__name__: PART_IGNORED for part in PARTS}
"""What is ignored within messages."""

STREAMED = ("/v1/completions", "/v1/chat/completions")
ASKED = {
    "/v1/models": "The served model, under its name and aliases.",
    "/v1/models/{id}": "One of them.",
    "/health": "Whether requests are taken.",
    "/live": "Whether the process answers.",
    "/metrics": "Prometheus' text format.",
    "/version": "Versions of the server and what it runs on.",
    "/load": "What is in flight.",
    "/openapi.json": "This document.",
}


class Problem(Struct):
    """What went wrong."""

    message: str
    type: str
    param: str | None
    code: str | None


class ErrorBody(Struct):
    """An error's body, with any status of 400 and above."""

    error: Problem


@cache
def openapi_document() -> bytes:
    """The document, as JSON."""
    types = [shape for shape, _ in BODIES.values()]
    _, schemas = msgspec.json.schema_components([*types, ErrorBody], ref_template=REF)
    for shape in types:
        _tell_the_truth(schemas[shape.__name__])
    for name, ignored in INSIDE.items():
        schemas[name]["properties"] |= _ignored(ignored)
    del schemas["MessageBody"]["additionalProperties"]  # an assistant's may have more
    paths = {path: {"post": _operation(summary, path, shape.__name__)} for path, (shape, summary) in BODIES.items()}
    paths |= {path: {"get": _operation(summary, path)} for path, summary in ASKED.items()}
    cancel = "/v1/requests/{id}/cancel"
    paths[cancel] = {"post": _operation("Cancel what is in flight under an id.", cancel)}
    info = {"title": "paceline", "version": version("paceline"), "license": {"name": "Apache-2.0"}}
    document = {"openapi": "3.1.0", "info": info, "paths": paths, "components": {"schemas": schemas}}
    return msgspec.json.encode(document)


def _tell_the_truth(schema: dict[str, Any]) -> None:
    """What parsing adds to a declaration: null is absence, some fields are ignored or not built, others unknown."""
    required = schema.get("required", [])
    properties = {name: value for name, value in schema["properties"].items() if name not in NOT_YET}
    for name, value in properties.items():
        if name not in required:
            description = value.pop("description", "")
            properties[name] = {"anyOf": [value, {"type": "null"}], "description": description}
    schema["properties"] = properties | _ignored(IGNORED)
    schema["additionalProperties"] = False


def _ignored(table: Mapping[str, str]) -> dict[str, Any]:
    return {name: {"description": f"Ignored: {reason}."} for name, reason in table.items()}


def _operation(summary: str, path: str, body: str = "") -> dict[str, Any]:
    content: dict[str, Any] = {"text/plain" if path == "/metrics" else "application/json": {}}
    if path in STREAMED:
        content["text/event-stream"] = {}
    error = {"schema": {"$ref": REF.format(name="ErrorBody")}}
    operation: dict[str, Any] = {
        "summary": summary,
        "responses": {
            "200": {"description": "The answer.", "content": content},
            "default": {"description": "An error.", "content": {"application/json": error}},
        },
    }
    if "{id}" in path:
        id_ = {"name": "id", "in": "path", "required": True, "schema": {"type": "string"}}
        operation["parameters"] = [id_]
    if body:
        schema = {"schema": {"$ref": REF.format(name=body)}}
        operation["requestBody"] = {"required": True, "content": {"application/json": schema}}
    return operation
