"""The handlers: parse, prepare, submit, render; no logic of their own. They know neither onnxruntime nor threads."""

import re
from collections.abc import Awaitable, Callable

import msgspec
from anyio import to_thread
from starlette.requests import Request
from starlette.responses import Response

from scheduler.request import Request as EngineRequest
from server.errors import NotFound, TooLarge, UnsupportedMedia
from server.generation import Generation
from server.prompt import Prepared
from server.render import (
    ChatRenderer,
    CompletionRenderer,
    Head,
    Renderer,
    chat_id,
    completion_id,
    model_card,
    model_list,
)
from server.reply import EventReply, LaterReply, json_reply
from server.schema import Call, parse_chat, parse_completion
from server.service import Service
from server.text import TextStream

Reply = Response | LaterReply | EventReply
Handler = Callable[[Request], Awaitable[Reply]]
PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Endpoints:
    """One method per path."""

    def __init__(self, service: Service) -> None:
        self._service = service

    async def completions(self, request: Request) -> Reply:
        """`POST /v1/completions`."""
        call = parse_completion(await self._body(request))
        self._check_model(call.model)
        prepared = await to_thread.run_sync(self._service.prompter.completion, call)
        return self._answer(call, completion_id(), prepared, CompletionRenderer)

    async def chat_completions(self, request: Request) -> Reply:
        """`POST /v1/chat/completions`."""
        call = parse_chat(await self._body(request))
        self._check_model(call.model)
        prepared = await to_thread.run_sync(self._service.prompter.chat, call)
        return self._answer(call, chat_id(), prepared, ChatRenderer)

    async def models(self, _: Request) -> Reply:
        """`GET /v1/models`."""
        return json_reply(model_list(self._service.cards))

    async def model(self, request: Request) -> Reply:
        """`GET /v1/models/{id}`."""
        name = request.path_params["id"]
        self._check_model(name)
        return json_reply(model_card(next(card for card in self._service.cards if card.id == name)))

    async def health(self, _: Request) -> Reply:
        """`GET /health`: 200 while requests are taken."""
        bridge = self._service.bridge
        facts = {
            "status": bridge.state,
            "in_flight": bridge.in_flight,
            "seconds_since_last_step": round(bridge.silence, 3),
            "reason": str(bridge.failure) if bridge.failure else None,
        }
        return json_reply(msgspec.json.encode(facts), 200 if bridge.state == "ready" else 503)

    async def live(self, _: Request) -> Reply:
        """`GET /live`: the process answers."""
        return json_reply(b'{"status":"alive"}')

    async def metrics(self, _: Request) -> Reply:
        """`GET /metrics`."""
        return Response(self._service.metrics.render(), media_type=PROMETHEUS)

    async def version(self, _: Request) -> Reply:
        """`GET /version`."""
        return json_reply(msgspec.json.encode(self._service.versions))

    def _answer(self, call: Call, id_: str, prepared: Prepared, make: type[Renderer]) -> Reply:
        """Say how the prepared prompt is answered; it is submitted when the answer begins."""
        streaming = call.streaming
        generation = Generation(
            self._service.bridge,
            EngineRequest(id_, prepared.tokens, prepared.params),
            TextStream(self._service.vocabulary, prepared.stop),
        )
        renderer = make(Head(id_, call.model or self._service.name), include_usage=streaming.include_usage)
        if not streaming.wanted:
            return LaterReply(lambda: generation.reply(renderer))
        return EventReply(
            generation.events(renderer, usage=streaming.include_usage, continuous=streaming.continuous_usage)
        )

    def _check_model(self, name: str) -> None:
        if name and name not in {card.id for card in self._service.cards}:
            raise NotFound.model(name, self._service.name)

    async def _body(self, request: Request) -> bytes:
        """The body of a JSON request, within the limit."""
        content_type = request.headers.get("content-type", "application/json")
        if not JSON_TYPE.fullmatch(content_type):
            raise UnsupportedMedia(content_type)
        limit = self._service.max_body
        if int(request.headers.get("content-length", "0")) > limit:
            raise TooLarge(limit)
        body = bytearray()
        async for chunk in request.stream():
            body += chunk
            if len(body) > limit:
                raise TooLarge(limit)
        return bytes(body)


JSON_TYPE = re.compile(r"\s*application/([\w.-]+\+)?json\s*(;.*)?", re.IGNORECASE)
