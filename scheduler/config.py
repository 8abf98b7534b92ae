"""How much room the engine has. Made once from the options, the model and the machine; knows no environment.

One budget of memory holds all: the process itself, the weights, what a step needs while it runs, and the KV cache,
whose part is counted in tokens. See `Memory`.
"""

import math
import sys
from dataclasses import dataclass

from scheduler.errors import ModelFolderError
from scheduler.model.spec import ModelSpec
from scheduler.plan import MOST_SCORED

MOST_SLOTS = 32
"""The default number of slots: past it a step on two cores grows faster than what it yields."""

MEMORY_SHARE = 0.8
"""The part of the memory at hand that is the default budget."""

PROCESS = 192 * 2**20
"""Bytes of the process without a model: Python, the libraries, the tokenizer, the replies in the making."""

ROW_FLOATS = 30
"""Floats that a step needs for each row and unit of the model's width.

The row itself 1, its queries, keys and values up to 3, the queries turned and the attention 2, and the two halves of a
gated layer 8 with their product 4; half as much again is kept of a thread's own memory, and what is alive at once does
not fill the arena.
"""

TILE = 8
"""Queries that a thread holds against all tokens at once, at the most."""

LEAST_CONTEXT = 16


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The room of an engine.

    Attributes:
        slots: requests in flight at the most.
        context: tokens of one request at the most, prompt and new ones.
        step_rows: rows of one step at the most (LEAST_PREFILL more when all decode).
        threads: of the model run.
        tokens: in the KV cache at the most, over all slots and for whatever purpose.
        target_itl: seconds that a step with both kinds of rows may take, so far as LEAST_PREFILL rows allow.
        prefix_reuse: whether the prompts of requests that have ended are kept for those that begin alike.
    """

    slots: int
    context: int
    step_rows: int
    threads: int
    tokens: int = sys.maxsize
    prefix_reuse: bool = True
    target_itl: float = math.inf

    @property
    def budget(self) -> int:
        """Tokens in the KV cache at the most, which all slots full to the brim have."""
        return min(self.tokens, self.slots * self.context)

    @property
    def longest(self) -> int:
        """Tokens of one request at the most: alone it must fit the budget."""
        return min(self.context, self.budget)


@dataclass(frozen=True, slots=True)
class Memory:
    """Where the memory goes, in bytes.

    Attributes:
        budget: what all may take.
        fixed: the process, the weights, a step's rows and logits, and the last page of each slot, which is half used.
        per_token: of a request's KV cache.
        per_context: of a step's attention, for each token that a request may have.
    """

    budget: int
    fixed: int
    per_token: int
    per_context: int

    @classmethod
    def of(cls, spec: ModelSpec, budget: int, *, slots: int, step_rows: int, threads: int) -> "Memory":
        """What serving a model takes.

        The attention of a step holds a float for each query of a thread's tile and each token, and asks for half as
        much again as it needs.
        """
        rows = step_rows * spec.hidden * ROW_FLOATS * 4
        logits = max(slots, MOST_SCORED) * spec.vocab_size * 4
        pages = slots * spec.page_bytes
        scores = threads * TILE * 6
        return cls(budget, PROCESS + spec.weight_bytes + rows + logits + pages, spec.kv_bytes_per_token, scores)

    @property
    def most_context(self) -> int:
        """The longest context that one request alone can have."""
        return (self.budget - self.fixed) // (self.per_token + self.per_context)

    def tokens(self, context: int) -> int:
        """Tokens that the KV cache can hold where requests may have so many."""
        return (self.budget - self.fixed - context * self.per_context) // self.per_token

    def needed(self, context: int) -> int:
        """The budget that one request of such a length asks for."""
        return self.fixed + context * (self.per_token + self.per_context)


def fit(
    spec: ModelSpec, *, slots: int | None, context: int | None, step_rows: int, threads: int, memory: int
) -> EngineConfig:
    """The room for a model in a budget of `memory` bytes; None lets the budget decide.

    Raises ModelFolderError where the model cannot serve the context, or the budget does not hold it even once.
    """
    if context is not None and context > spec.context:
        raise ModelFolderError(
            f"a context of {context} tokens was asked for, and {spec.name} was made for {spec.context}: "
            f"ask for at most that, or import the model anew with --context {context}"
        )
    slots = slots or MOST_SLOTS
    room = Memory.of(spec, memory, slots=slots, step_rows=step_rows, threads=threads)
    most = room.most_context
    wanted = context or min(spec.context, max(most, LEAST_CONTEXT))
    if wanted > most:
        advice = f"; ask for a --context of {most} at most" if most >= LEAST_CONTEXT else ""
        raise ModelFolderError(
            f"a memory of {memory / 2**30:.2f} GiB does not hold {spec.name} and {wanted} tokens: "
            f"that takes {room.needed(wanted) / 2**30:.2f} GiB{advice}"
        )
    tokens = min(room.tokens(wanted), slots * wanted)
    return EngineConfig(slots=slots, context=wanted, step_rows=step_rows, threads=threads, tokens=tokens)
