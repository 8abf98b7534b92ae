"""How far one packed folder is from another, and how long its steps take: both measured by running them.

Logits of a text are compared row by row in float64. Reference and candidate run in turns, a chunk at a time, so that
never more than a chunk of each one's logits is held. Knows neither how the folders were made nor who is told.
"""

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from statistics import median
from time import perf_counter

import msgspec
import numpy as np
import numpy.typing as npt

from scheduler.batch import Batch
from scheduler.config import EngineConfig
from scheduler.host import cores
from scheduler.model.session import PackedSession
from scheduler.model.spec import ModelSpec

Floats = npt.NDArray[np.float32]

CHUNK = 256
"""Tokens of a text that one run computes."""

_BLOCK = 32  # rows that are compared at a time: bounds the temporary arrays in float64
_WARM_UP = 3  # runs before any is timed


class Quality(msgspec.Struct, frozen=True):
    """A candidate's logits of one text beside the reference's.

    Attributes:
        kl: mean over the text's tokens of KL(reference || candidate) of what comes next, in nats.
        top1: share of the tokens after which both think the same one likeliest.
        perplexity: exp of the candidate's mean negative log-likelihood of each token but the first.
        reference_perplexity: likewise the reference's.
    """

    kl: float
    top1: float
    perplexity: float
    reference_perplexity: float


def compare(reference: Path, candidate: Path, texts: Mapping[str, Sequence[int]]) -> dict[str, Quality]:
    """Measure a packed folder against another of the same vocabulary, on each of the texts.

    A text longer than either model's context is cut to it; each has at least two tokens.

    Raises:
        ModelFolderError: One of the folders is not a packed model.
        StepFailed: One of the models does not run.

    """
    specs = [ModelSpec.from_folder(folder) for folder in (reference, candidate)]
    longest = min(max(map(len, texts.values()), default=0), *(spec.context for spec in specs))
    first, second = (closing(_open(spec, slots=1, context=longest, step_rows=CHUNK)) for spec in specs)
    with first as one, second as other:
        cut = {name: tokens[:longest] for name, tokens in texts.items()}
        return {name: measure(all_logits(one, text), all_logits(other, text), text) for name, text in cut.items()}


def all_logits(session: PackedSession, tokens: Sequence[int], chunk: int = CHUNK) -> Iterator[Floats]:
    """Give the logits [rows, V] after every token of a text, a chunk at a time.

    Slot 0 is written over. Each array is valid until the session runs again.
    """
    ids = np.array([tokens], np.int64)
    for start in range(0, len(tokens), chunk):
        yield _run(session, _batch(ids[:, start : start + chunk], start))


def measure(reference: Iterable[Floats], candidate: Iterable[Floats], tokens: Sequence[int]) -> Quality:
    """Compare the finite logits of a text of at least two tokens; both come in the same chunks, [rows, V] each."""
    following = np.array(tokens[1:], np.int64)
    kl, loss, agreed, row = 0.0, np.zeros(2), 0, 0
    for one, other in _blocks(reference, candidate):
        p, q = log_softmax(one), log_softmax(other)
        kl += float((np.exp(p) * (p - q)).sum())
        agreed += int((one.argmax(axis=-1) == other.argmax(axis=-1)).sum())
        targets = following[row : row + len(one)]
        at = np.arange(len(targets))
        loss -= p[at, targets].sum(), q[at, targets].sum()
        row += len(one)
    expected, found = loss / len(following)
    return Quality(kl / row, agreed / row, math.exp(found), math.exp(expected))


def log_softmax(logits: Floats) -> npt.NDArray[np.float64]:
    """Turn logits [..., V] into log-probabilities, in float64."""
    shifted = logits.astype(np.float64)
    shifted -= shifted.max(axis=-1, keepdims=True)
    shifted -= np.log(np.exp(shifted).sum(axis=-1, keepdims=True))
    return shifted


def step_times(folder: Path, rows: Sequence[int] = (1, 8, 32), cached: int = 64, repeats: int = 20) -> dict[int, float]:
    """Time a decode step of so many rows, each behind `cached` tokens: the median of the repeats, in seconds.

    Raises:
        ModelFolderError: The folder is not a packed model.
        StepFailed: The model does not run.

    """
    spec = ModelSpec.from_folder(folder)
    cached = min(cached, spec.context - 1)
    ids = np.random.default_rng(0).integers(0, spec.vocab_size, (max(rows), cached + 1))
    with closing(_open(spec, slots=max(rows), context=cached + 1, step_rows=cached)) as session:
        _run(session, _batch(ids[:1, :-1], 0))
        for slot in range(1, max(rows)):
            session.copy(0, slot, cached)
        return {count: _time(session, _batch(ids[:count, -1:], cached), repeats) for count in rows}


def _time(session: PackedSession, batch: Batch, repeats: int) -> float:
    """Time a run that leaves the cache as it finds it from the second time on."""
    seconds = []
    for _ in range(_WARM_UP + repeats):
        start = perf_counter()
        _run(session, batch)
        seconds.append(perf_counter() - start)
    return median(seconds[_WARM_UP:])


def _open(spec: ModelSpec, *, slots: int, context: int, step_rows: int) -> PackedSession:
    return PackedSession(spec, EngineConfig(slots=slots, context=context, step_rows=step_rows, threads=cores()))


def _run(session: PackedSession, batch: Batch) -> Floats:
    """Logits of all of the batch's rows."""
    return session.run(batch, np.zeros(len(batch.logit_rows), np.float32)).logits


def _batch(ids: npt.NDArray[np.int64], start: int) -> Batch:
    """Feed ids [width, count] to the slots 0, 1, ..., each behind `start` cached tokens, and ask for all logits."""
    width, count = ids.shape
    return Batch(
        input_ids=ids.ravel(),
        slots=np.repeat(np.arange(width, dtype=np.int32), count),
        positions=np.tile(np.arange(start, start + count, dtype=np.int32), width),
        logit_rows=np.arange(width * count, dtype=np.int64),
        sampled=(),
        scored=(),
    )


def _blocks(reference: Iterable[Floats], candidate: Iterable[Floats]) -> Iterator[tuple[Floats, Floats]]:
    for one, other in zip(reference, candidate, strict=True):
        for start in range(0, len(one), _BLOCK):
            yield one[start : start + _BLOCK], other[start : start + _BLOCK]
