"""The handlers: parse, prepare, submit, render; no logic of their own. They know neither onnxruntime nor threads."""

from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

import msgspec
from starlette.requests import Request
from starlette.responses import Response

from server.answer import check_size, generation
from server.aside import Aside
from server.call import Call, ChatCall, CompletionCall, DetokenizeCall, TokenizeCall
from server.cards import model_card, model_list, tokenized
from server.errors import NotFound
from server.ids import chat_id, completion_id
from server.incoming import body_of
from server.openapi import openapi_document
from server.prompt import Prompt
from server.record import CURRENT
from server.render import (
    ChatRenderer,
    CompletionRenderer,
    Head,
    Renderer,
)
from server.reply import EventReply, LaterReply, json_reply
from server.schema import parse_chat, parse_completion, parse_detokenize, parse_tokenize, request_id_of
from server.service import Service
from server.stretches import in_stretches

Reply = Response | LaterReply | EventReply
Handler = Callable[[Request], Awaitable[Reply]]
Parsed = TypeVar("Parsed", Call, CompletionCall, ChatCall, TokenizeCall, DetokenizeCall)
TOKEN_BYTES = 16
"""Bytes of a body that take about as long as a token that is echoed."""

PROMETHEUS = "text/plain; version=0.0.4; charset=utf-8"


class Endpoints:
    """One method per path."""

    def __init__(self, service: Service) -> None:
        self._service = service
        self._aside = Aside()

    async def completions(self, request: Request) -> Reply:
        """`POST /v1/completions`."""
        body, service = await self._named_body(request), self._service
        call = await self._parsed(body, lambda: parse_completion(body, service.on_unknown, service.defaults))
        check_size(service, len(call.prompts), call.n)
        prompts = await self._aside.in_thread(len(body), lambda: service.prompter.completion(call))
        return await self._answer(request, call, completion_id(), prompts, CompletionRenderer)

    async def chat_completions(self, request: Request) -> Reply:
        """`POST /v1/chat/completions`."""
        body, service = await self._named_body(request), self._service
        call = await self._parsed(body, lambda: parse_chat(body, service.on_unknown, service.defaults))
        check_size(service, 1, call.n)
        prompts = await self._aside.in_thread(len(body), lambda: service.prompter.chat(call))
        return await self._answer(request, call, chat_id(), prompts, ChatRenderer)

    async def cancel(self, request: Request) -> Reply:
        """`POST /v1/requests/{id}/cancel`: by the reply's id, or the request's."""
        name = request.path_params["id"]
        ids = self._service.inflight.find(name)
        if not ids:
            raise NotFound.request(name)
        for id_ in ids:
            self._service.bridge.cancel(id_)
        return json_reply(msgspec.json.encode({"id": name, "cancelled": True}))

    async def tokenize(self, request: Request) -> Reply:
        """`POST /tokenize`."""
        body, service = await self._body(request), self._service
        call = await self._parsed(body, lambda: parse_tokenize(body, service.on_unknown))
        tokens = await self._aside.in_thread(len(body), lambda: service.prompter.tokenize(call))
        spelled = (service.vocabulary.spelling_of(token).decode(errors="replace") for token in tokens)
        work = tokenized(tokens, spelled if call.strings else None, service.cards[0].max_model_len)
        return json_reply(await in_stretches(work))

    async def detokenize(self, request: Request) -> Reply:
        """`POST /detokenize`."""
        body, service = await self._body(request), self._service
        call = await self._parsed(body, lambda: parse_detokenize(body, service.on_unknown))
        text = await self._aside.in_thread(len(body), lambda: service.prompter.detokenize(call))
        return json_reply(msgspec.json.encode({"prompt": text}))

    async def openapi(self, _: Request) -> Reply:
        """`GET /openapi.json`."""
        return json_reply(openapi_document())

    async def load(self, _: Request) -> Reply:
        """`GET /load`: what is in flight now."""
        return json_reply(msgspec.json.encode(self._service.bridge.load()))

    async def models(self, _: Request) -> Reply:
        """`GET /v1/models`."""
        return json_reply(model_list(self._service.cards))

    async def model(self, request: Request) -> Reply:
        """`GET /v1/models/{id}`."""
        name = request.path_params["id"]
        card = next((card for card in self._service.cards if card.id == name), None)
        if card is None:
            raise NotFound.model(name, self._service.name)
        return json_reply(model_card(card))

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

    async def _answer(
        self, request: Request, call: Call, id_: str, prompts: Sequence[Prompt], make: type[Renderer]
    ) -> Reply:
        """Say how the prepared prompts are answered; they are submitted when the answer begins."""
        streaming = call.streaming
        names, key = [request.state.request_id], getattr(request.state, "key", "")
        echoed = sum(len(prompt.tokens) for prompt in prompts) if call.reporting.echo else 0
        made = await self._aside.run(
            TOKEN_BYTES * echoed, lambda: generation(self._service, call, prompts, id_, names, key)
        )
        renderer = make(Head(id_, call.model or self._service.name), include_usage=streaming.include_usage)
        if not streaming.wanted:
            return LaterReply(lambda: made.reply(renderer))
        return EventReply(made.events(renderer, usage=streaming.include_usage, continuous=streaming.continuous_usage))

    async def _parsed(self, body: bytes, parse: Callable[[], Parsed]) -> Parsed:
        """The call that a body makes of the model that is served."""
        call = await self._aside.run(len(body), parse)
        self._check_model(call.model)
        return call

    def _check_model(self, name: str) -> None:
        if name and name not in {card.id for card in self._service.cards}:
            raise NotFound.model(name, self._service.name)

    async def _named_body(self, request: Request) -> bytes:
        """The body of a request that may name itself; from here on it goes by that name, in its refusal too."""
        body = await self._body(request)
        if name := await self._aside.run(len(body), lambda: request_id_of(body)):
            request.state.request_id = name
            if (record := CURRENT.get()) is not None:
                record.id = name
        return body

    async def _body(self, request: Request) -> bytes:
        return await body_of(request, self._service.max_body)
