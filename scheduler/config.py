"""How much room the engine has. Made once from the options, the model and the machine; knows no environment."""

from dataclasses import dataclass

from scheduler.errors import ModelFolderError
from scheduler.model.spec import ModelSpec

MOST_SLOTS = 32
"""The default number of slots: past it a step on two cores grows faster than what it yields."""

MEMORY_SHARE = 0.6
"""The part of the memory left after loading that the KV cache may fill by default."""


@dataclass(frozen=True, slots=True, kw_only=True)
class EngineConfig:
    """The room of an engine.

    Attributes:
        slots: requests in flight at the most.
        context: tokens of one request at the most, prompt and new ones.
        step_rows: rows of one step at the most (LEAST_PREFILL more when all decode).
        threads: of the model run.
    """

    slots: int
    context: int
    step_rows: int
    threads: int

    @property
    def capacity(self) -> int:
        """Tokens that a slot has room for: the padded chunk behind a full context must still fit the cache."""
        return self.context + self.step_rows


def fit(
    spec: ModelSpec, *, slots: int | None, context: int | None, step_rows: int, threads: int, memory: int
) -> EngineConfig:
    """The room for a model where `memory` bytes are at hand; None lets the memory decide.

    Raises ModelFolderError where the model cannot serve the context, or the memory not even one slot of it.
    """
    if context is not None and context > spec.context:
        raise ModelFolderError(
            f"a context of {context} tokens was asked for, and {spec.name} was made for {spec.context}: "
            f"ask for at most that, or import the model anew with --context {context}"
        )
    context = context or spec.context
    budget = int(memory * MEMORY_SHARE)
    if slots is None:
        per_slot = (context + step_rows) * spec.kv_bytes_per_token
        slots = min(MOST_SLOTS, budget // per_slot)
    if slots < 1:
        room = budget // spec.kv_bytes_per_token - step_rows
        raise ModelFolderError(
            f"{memory / 2**30:.1f} GiB of memory hold no slot of {context} tokens; "
            f"ask for a --context of {max(room, 1)} at most"
        )
    return EngineConfig(slots=slots, context=context, step_rows=step_rows, threads=threads)
