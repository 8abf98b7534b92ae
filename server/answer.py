"""A prepared call to the generation that answers it: one request and one choice for each prompt and index.

Knows no HTTP.
"""

from collections.abc import Iterable, Sequence
from dataclasses import replace

from scheduler.request import Request
from server.call import Call
from server.choice import Asked, Choice
from server.errors import BadRequest
from server.generation import Generation
from server.prompt import Prompt
from server.service import Service


def check_size(service: Service, prompts: int, n: int) -> None:
    """Raise BadRequest where so many choices can never be in flight at once."""
    room = service.bridge.room
    if prompts * n > room:
        param = "n" if prompts <= room else "prompt"
        raise BadRequest(
            f"{prompts} prompts with {n} choices each are {prompts * n} generations; this server takes {room} at once.",
            param=param,
        )


def generation(
    service: Service, call: Call, prompts: Sequence[Prompt], id_: str, names: Iterable[str], key: str
) -> Generation:
    """How the call of a key's holder is answered, under an id; nothing is submitted yet."""
    requests, choices = [], []
    handling = call.handling
    salt = f"{key if service.isolate_keys else ''}\n{handling.cache_salt}"
    several = len(prompts) * call.n > 1
    for place, prompt in enumerate(prompts):
        asked = Asked(service.vocabulary, prompt, call.reporting)
        siblings = f"{id_}-{place}" if call.n > 1 else ""
        for i in range(call.n):
            index = place * call.n + i
            params = replace(
                prompt.params,
                seed=(prompt.params.seed + i) % 2**64,
                prompt_logprobs=prompt.params.prompt_logprobs if i == 0 else None,
            )
            name = f"{id_}-{index}" if several else id_
            requests.append(Request(name, prompt.tokens, params, siblings, handling.priority, salt, key))
            choices.append(Choice(index, asked, service.vocabulary, call.reporting.logprobs, first=i == 0))
    return Generation(
        bridge=service.bridge,
        inflight=service.inflight,
        requests=requests,
        choices=choices,
        prompt_tokens=sum(len(prompt.tokens) for prompt in prompts),
        timeout=handling.timeout,
        names=frozenset((id_, *(name for name in names if name))),
    )
