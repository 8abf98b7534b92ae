"""What a run's logits say of the requests in it: their next tokens, what is reported of them, and who ends by it.

Knows no slots and no model, and leaves the requests as they are but for their generators: the engine commits.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.batch import Batch, Output
from scheduler.errors import EngineError, RequestFailed
from scheduler.logprobs import TokenLogprobs, token_logprobs
from scheduler.plan import Slice
from scheduler.request import Finish, Request
from scheduler.sampling import sample, wanted_temperature

Logits = NDArray[np.float32]


@dataclass(frozen=True, slots=True)
class Outcome:
    """What came of one request in a step.

    Attributes:
        scores: reports on its prompt, where it asked for them.
        token: the next one; None where its prompt is not done, or was all that it wanted, or it failed.
        logprobs: the report on `token`, one or none.
        finish: why it ends, or None.
        error: set exactly where `finish` is FAILED.
    """

    request: Request
    scores: tuple[TokenLogprobs, ...] = ()
    token: int | None = None
    logprobs: tuple[TokenLogprobs, ...] = ()
    finish: Finish | None = None
    error: EngineError | None = None


def temperatures(batch: Batch, requests: Mapping[str, Request]) -> Logits:
    """The temperature [R] of the mass that each of the batch's logit rows needs; 0 where it needs none."""
    wanted = np.zeros(len(batch.logit_rows), np.float32)
    sampled = [requests[id_] for id_ in batch.sampled]
    wanted[: len(sampled)] = [wanted_temperature(r.params, r.history) for r in sampled]
    return wanted


def outcomes(batch: Batch, output: Output, requests: Mapping[str, Request]) -> list[Outcome]:
    """What a run says of the batch's logit rows, at most one outcome for each request."""
    sampled = [requests[id_] for id_ in batch.sampled]
    tokens = sample(output, [r.params for r in sampled], [r.generator for r in sampled], [r.history for r in sampled])
    scores = dict(_scores(batch, output.logits[len(sampled) :], requests))
    found = [
        _drawn(r, row, token, scores.pop(r.id, ()))
        for r, row, token in zip(sampled, output.logits, tokens, strict=False)
    ]
    return found + [_scored(s, requests[s.id], scores[s.id]) for s in batch.scored if s.id in scores]


def _scores(
    batch: Batch, logits: Logits, requests: Mapping[str, Request]
) -> Iterator[tuple[str, tuple[TokenLogprobs, ...] | None]]:
    """The reports on each slice's scored rows; None where one has no usable numbers."""
    rows = iter(logits)
    for s in batch.scored:
        request = requests[s.id]
        count = request.params.prompt_logprobs or 0
        targets = request.prompt[s.start + 1 : s.start + 1 + s.scored]
        found = [token_logprobs(next(rows), token, count) for token in targets]
        yield s.id, None if None in found else tuple(score for score in found if score is not None)


def _drawn(request: Request, row: Logits, token: int | None, scores: tuple[TokenLogprobs, ...] | None) -> Outcome:
    if token is None or scores is None:
        return _failed(request)
    count = request.params.logprobs
    report = None if count is None else token_logprobs(row, token, count)
    finish = None
    if token in request.params.end_tokens:
        finish = Finish.STOP
    elif request.generated + 1 == request.params.max_tokens:
        finish = Finish.LENGTH
    return Outcome(request, scores, token, () if report is None else (report,), finish)


def _scored(s: Slice, request: Request, scores: tuple[TokenLogprobs, ...] | None) -> Outcome:
    if scores is None:
        return _failed(request)
    done = request.params.max_tokens == 0 and s.start + s.scored == len(request.prompt) - 1  # the last one has none
    return Outcome(request, scores, finish=Finish.LENGTH if done else None)


def _failed(request: Request) -> Outcome:
    error = RequestFailed("the model's logits for it are not finite")
    return Outcome(request, finish=Finish.FAILED, error=error)
