from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.config import EngineConfig, Memory, fit
from scheduler.errors import ModelFolderError
from scheduler.model.spec import ModelSpec

SMALL = ModelSpec(
    folder=Path("nowhere"), name="small", layers=30, kv_heads=3, head_size=64, context=8192,
    vocab_size=49152, end_tokens=frozenset({2}), heads=9, hidden=576,
)  # fmt: skip
MIB = 2**20


def fitted(memory: int, slots: int | None = None, context: int | None = None) -> EngineConfig:
    return fit(SMALL, slots=slots, context=context, step_rows=256, threads=1, memory=memory)


@given(st.integers(0, 64 * 1024), st.none() | st.integers(1, 64), st.none() | st.integers(16, 8192))
def test_a_fit_stays_within_its_memory_and_holds_one_request_of_any_allowed_length(
    mebibytes: int, slots: int | None, context: int | None
) -> None:
    try:
        config = fitted(mebibytes * MIB, slots, context)
    except ModelFolderError:
        return
    needs = Memory.of(SMALL, mebibytes * MIB, slots=config.slots, step_rows=256, threads=1)
    spent = needs.fixed + config.context * needs.per_context + config.budget * needs.per_token
    assert spent <= mebibytes * MIB
    assert config.longest == config.context <= config.budget
    assert config.context == (context or config.context)


def test_context_and_cache_follow_from_the_memory() -> None:
    roomy, tight = fitted(64 * 1024 * MIB), fitted(384 * MIB)
    assert (roomy.slots, roomy.context, roomy.budget) == (32, 8192, 32 * 8192)
    assert tight.context < 8192


def test_a_memory_that_does_not_hold_the_context_is_refused_with_what_would_do() -> None:
    with pytest.raises(ModelFolderError, match=r"0\.38 GiB does not hold small and 8192 tokens: that takes"):
        fitted(384 * MIB, context=8192)
    with pytest.raises(ModelFolderError, match="made for 8192"):
        fitted(8192 * MIB, context=9000)
