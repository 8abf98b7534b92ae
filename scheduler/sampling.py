"""What a run says and parameters to tokens, each request with its own random generator. Knows nothing of requests.

Every operation here works row by row, so a request's token does not depend on who else is sampled with it.

A run gives each row's likeliest tokens, the candidates, and what the whole vocabulary weighs. A token is drawn at one
uniform number of a cumulative distribution whose order is: the candidates, likeliest first, then all others by id; or
likeliest first altogether where some are left out. Mostly the candidates decide, for all rows at once, and nobody reads
a row of logits; where they do not, see `scheduler.tail`. Rows whose logits are changed before get candidates of their
own.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from scheduler.adjust import History, Logits, adjusted, untouched
from scheduler.batch import CANDIDATES, Output
from scheduler.params import SamplingParams
from scheduler.tail import LEAST_TEMPERATURE, Undecided, drawn, least_below, top, weights_of

Floats = NDArray[np.float64]


def wanted_temperature(p: SamplingParams, history: History) -> float:
    """The temperature of the mass that a row's draw goes by; 0 where it goes by none."""
    few = 0 < p.top_k <= CANDIDATES
    return 0.0 if p.greedy or few or not untouched(p, history) else max(p.temperature, LEAST_TEMPERATURE)


def sample(
    output: Output,
    params: Sequence[SamplingParams],
    generators: Sequence[np.random.Generator],
    histories: Sequence[History],
) -> list[int | None]:
    """The next token of each of the first rows, as many as there are params; None where it holds no usable numbers.

    The masses are for the temperatures that `wanted_temperature` gives. One uniform number is drawn per row that is not
    greedy.
    """
    count = len(params)
    rows = _Rows.of(output, params, histories)
    usable = np.isfinite(rows.values[:, 0]).tolist()
    likeliest = rows.ids[:, 0].tolist()
    warm = [i for i in range(count) if usable[i] and not params[i].greedy]
    tokens: list[int | None] = [token if ok else None for token, ok in zip(likeliest, usable, strict=True)]
    if warm:
        uniforms = np.array([generators[i].random() for i in warm])
        for i, token in zip(warm, _draw(rows.only(warm), [params[i] for i in warm], uniforms), strict=True):
            tokens[i] = token
    return tokens


@dataclass(frozen=True, slots=True, eq=False)
class _Rows:
    """Candidates [N, C] of N rows as they are to be sampled, the masses [N], and the logits [N] of [vocabulary]."""

    ids: NDArray[np.int32]
    values: NDArray[np.float32]
    mass: NDArray[np.float32]
    logits: Logits | list[Logits]

    @classmethod
    def of(cls, output: Output, params: Sequence[SamplingParams], histories: Sequence[History]) -> "_Rows":
        """The first rows of an output; those that something is done to are looked through again."""
        count = len(params)
        ids, values, mass = output.top_ids[:count], output.top_values[:count], output.mass[:count]
        touched = [i for i in range(count) if not untouched(params[i], histories[i])]
        if not touched:
            return cls(ids, values, mass, output.logits)
        ids, values, mass, logits = ids.copy(), values.copy(), mass.copy(), list(output.logits[:count])
        for i in touched:
            if np.isfinite(values[i, 0]):
                row = logits[i] = adjusted(logits[i], params[i], histories[i])
                ids[i] = top(row, ids.shape[1])
                values[i] = row[ids[i]]
                mass[i] = 0 if params[i].greedy else weights_of(row, params[i]).sum()
        return cls(ids, values, mass, logits)

    def only(self, places: Sequence[int]) -> "_Rows":
        """Some of the rows."""
        if len(places) == len(self.ids):
            return self
        at = np.array(places)
        return _Rows(self.ids[at], self.values[at], self.mass[at], [self.logits[i] for i in places])


def _draw(rows: _Rows, params: Sequence[SamplingParams], uniforms: Floats) -> list[int]:
    """The token at the uniform number of each row."""
    every, (_, wide), vocabulary = np.arange(len(params)), rows.ids.shape, len(rows.logits[0])
    below = rows.values - rows.values[:, :1]
    with np.errstate(over="ignore"):  # a tiny temperature sends all but the likeliest to minus infinity
        weights = np.exp(below / np.array([[max(p.temperature, LEAST_TEMPERATURE)] for p in params]))
    sums = weights.cumsum(axis=1)
    limits, whole = _limits(below, params, vocabulary)
    inner = sums[every, np.minimum(limits, wide) - 1]
    within = limits <= wide  # else the candidates are a part of what top_k and min_p leave
    total = np.where(within, inner, np.maximum(rows.mass, inner))
    nucleus = np.array([p.top_p for p in params])
    bound = nucleus * total  # top_p is of the distribution that the others left
    last = np.minimum(_count(sums < bound[:, None]), np.minimum(limits, wide) - 1)
    end = np.where(nucleus == 1, inner, sums[every, last])
    points = uniforms * np.where(nucleus == 1, total, end)
    decided = within | (whole & np.where(nucleus == 1, points < inner, bound <= inner))
    places = np.minimum(_count(sums <= points[:, None]), _count(sums < end[:, None]))  # what is behind weighs nothing
    tokens: list[int] = rows.ids[every, places].tolist()
    for i in np.flatnonzero(~decided).tolist():
        row = Undecided(rows.logits[i], rows.ids[i], weights[i], float(total[i]))
        tokens[i] = drawn(row, params[i], float(uniforms[i]))
    return tokens


def _limits(
    below: NDArray[np.float32], params: Sequence[SamplingParams], vocabulary: int
) -> tuple[NDArray[np.intp], NDArray[np.bool_]]:
    """How many tokens top_k and min_p leave of each row, and whether that is all.

    Where the candidates are a part of them, they may be fewer: min_p has not been asked of the others.
    """
    wide = below.shape[1]
    limits = np.array([min(p.top_k or vocabulary, vocabulary) for p in params])
    least = np.array([least_below(p) for p in params], np.float32)
    passing = _count(below >= least[:, None])
    limits = np.where(passing < wide, np.minimum(limits, passing), limits)
    return limits, (limits == vocabulary) & (least == -np.inf)


def _count(where: NDArray[np.bool_]) -> NDArray[np.intp]:
    """How many of each row hold."""
    count: NDArray[np.intp] = np.count_nonzero(where, axis=1)
    return count
