from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from scheduler.coming import WORTH
from scheduler.config import EngineConfig
from scheduler.engine import PackedEngine
from scheduler.model.session import PackedSession
from scheduler.model.spec import ModelSpec
from scheduler.params import SamplingParams
from scheduler.request import Finish, Request
from tests.conftest import Packed
from tests.scheduler.fake_model import VOCABULARY, solo
from tests.scheduler.test_engine import Ledger, engine, run_dry


def siblings(name: str, prompt: list[int], count: int, n: int) -> list[Request]:
    params = SamplingParams(max_tokens=count, temperature=0.0)
    return [Request(f"{name}-{i}", tuple(prompt), params, siblings=name) for i in range(n)]


prompts = st.lists(st.integers(0, VOCABULARY - 1), min_size=1, max_size=60)
families = st.lists(
    st.tuples(prompts, st.integers(1, 5), st.integers(1, 12), st.integers(0, 9), st.none() | st.integers(0, 20)),
    min_size=1,
    max_size=4,
)


@given(families, st.integers(1, 5), st.integers(1, 40))
def test_siblings_get_what_each_gets_alone_whoever_leaves_when(
    families: list[tuple[list[int], int, int, int, int | None]], slots: int, step_rows: int
) -> None:
    packed, model = engine(slots, step_rows)
    ledger = Ledger()
    for step in range(40):
        for f, (prompt, n, count, at, first_leaves) in enumerate(families):
            if at == step:
                for request in siblings(f"{f}", prompt, count, n):
                    packed.add(request)
            if first_leaves == step:
                packed.drop(f"{f}-0")
        ledger.read(packed.step())
        packed.check()
    run_dry(packed, ledger)
    for f, (prompt, n, count, _, _) in enumerate(families):
        for i in range(n):
            tokens, (end,) = ledger.tokens[f"{f}-{i}"], ledger.ends[f"{f}-{i}"]
            assert tokens == solo(prompt, len(tokens))
            assert end.finish is Finish.LENGTH or (i == 0 and end.finish is Finish.CANCELLED)
            assert end.finish is not Finish.LENGTH or len(tokens) == count
    assert all(slot == [] for slot in model.slots)


def test_the_prompt_of_siblings_is_computed_once() -> None:
    packed, model = engine(slots=4, step_rows=16)
    for request in siblings("a", list(range(50)), 3, 4):
        packed.add(request)
    rows = 0
    while not packed.idle:
        rows += packed.step().prefill_rows
    assert rows == 50 + 3 * 2
    assert [tokens for _, _, tokens in model.copied] == [48] * 3


@pytest.mark.parametrize(("slots", "count"), [(1, 5), (2, 1), (4, 1)])
def test_the_prompt_is_computed_once_however_few_slots_and_tokens_there_are(slots: int, count: int) -> None:
    packed, model = engine(slots, step_rows=64)
    for request in [*siblings("a", list(range(50)), count, 6), *siblings("b", [1, 2], count, 1)]:
        packed.add(request)
    rows = 0
    ledger = Ledger()
    while not packed.idle:
        report = packed.step()
        rows += report.prefill_rows
        ledger.read(report)
        packed.check()
    assert rows == 50 + 5 + 2
    assert all(ledger.tokens[f"a-{i}"] == solo(list(range(50)), count) for i in range(6))
    assert all(slot == [] for slot in model.slots)


def test_who_waits_for_a_sibling_holds_up_nobody_else() -> None:
    packed, _ = engine(slots=4, step_rows=16)
    for request in [*siblings("a", list(range(50)), 9, 2), *siblings("b", [1, 2], 9, 1)]:
        packed.add(request)
    ledger = Ledger()
    for _ in range(4):
        ledger.read(packed.step())
    assert "b-0" in ledger.tokens
    run_dry(packed, ledger)


SYSTEM = tuple(range(40))
"""How the prompts of strangers begin."""

GREEDY = SamplingParams(max_tokens=3, temperature=0.0)


def strangers(count: int) -> list[Request]:
    return [Request(f"{i}", (*SYSTEM, 90 + i, i, 1), GREEDY) for i in range(count)]


def prefilled(packed: PackedEngine, requests: list[Request]) -> int:
    """The rows of prefill that all of them take, who must get what each gets alone."""
    for request in requests:
        packed.add(request)
    rows, ledger = 0, Ledger()
    while not packed.idle:
        report = packed.step()
        rows += report.prefill_rows
        ledger.read(report)
        packed.check()
    for request in requests:
        assert ledger.tokens[request.id] == solo(list(request.prompt), 3)
    return rows


@pytest.mark.parametrize("step_rows", [64, 256])
@pytest.mark.parametrize("slots", [1, 2, 8])
def test_what_strangers_that_come_together_share_is_computed_once(slots: int, step_rows: int) -> None:
    packed, _ = engine(slots, step_rows, reuse=True)
    assert prefilled(packed, strangers(6)) == 43 + 5 * 3


def test_where_a_prompt_takes_several_steps_little_of_it_is_computed_twice() -> None:
    packed, _ = engine(slots=8, step_rows=16, reuse=True)
    assert prefilled(packed, strangers(6)) < 43 + 5 * (3 + WORTH)


def started(packed: PackedEngine, requests: list[Request]) -> int:
    """The rows of prefill of the step after they have come."""
    for request in requests:
        packed.add(request)
    return packed.step().prefill_rows


def test_nobody_waits_where_nothing_is_shared_without_reuse_across_salts_or_when_scored() -> None:
    assert started(engine(8, 256)[0], strangers(3)) == 3 * 43
    apart = [replace(r, salt=r.id) for r in strangers(3)]
    assert started(engine(8, 256, reuse=True)[0], apart) == 3 * 43
    scored = [replace(r, params=replace(GREEDY, prompt_logprobs=0)) for r in strangers(3)]
    assert started(engine(8, 256, reuse=True)[0], scored) == 3 * 43


def test_nobody_waits_for_what_is_sooner_computed() -> None:
    shorter = [replace(r, prompt=r.prompt[10:]) for r in strangers(3)]
    assert started(engine(4, 256, reuse=True)[0], shorter) == 3 * 33


def test_nobody_waits_for_what_is_there_already() -> None:
    packed, _ = engine(slots=4, step_rows=64, reuse=True)
    long, short = strangers(2)
    assert started(packed, [replace(long, prompt=(*long.prompt, *range(36, 96)))]) == 64
    assert started(packed, [short]) == 43 + 60 - 64 + 3


def test_nobody_waits_for_a_prompt_whose_turn_is_later() -> None:
    packed, _ = engine(slots=4, step_rows=16, reuse=True)
    late, soon = (replace(r, prompt=SYSTEM + r.prompt) for r in strangers(2))
    packed.add(replace(late, priority=1))
    packed.step()
    packed.add(soon)
    packed.step()
    assert soon.slot is not None


def test_who_waits_goes_on_when_the_one_that_computes_leaves() -> None:
    packed, _ = engine(slots=4, step_rows=16, reuse=True)
    first, *rest = strangers(3)
    packed.add(first)
    for request in rest:
        packed.add(request)
    assert packed.step().running == 1
    packed.drop(first.id)
    ledger = Ledger()
    run_dry(packed, ledger)
    assert all(ledger.tokens[r.id] == solo(list(r.prompt), 3) for r in rest)


@pytest.mark.parametrize("length", [1, 2, 3, 90])
def test_siblings_are_bit_for_bit_separate_requests_on_a_real_model(packed: Packed, length: int) -> None:
    spec = ModelSpec.from_folder(packed("llama-int4"))
    config = EngineConfig(slots=4, context=spec.context, step_rows=32, threads=1)
    session = PackedSession(spec, config)
    prompt = tuple((7 * i) % spec.vocab_size for i in range(length))

    def run(family: str) -> dict[str, list[object]]:
        served, found = PackedEngine(session, config), dict[str, list[object]]()
        for i in range(3):
            params = SamplingParams(max_tokens=12, temperature=1.3, seed=5 + i, logprobs=3)
            served.add(Request(f"{i}", prompt, params, siblings=family))
        while not served.idle:
            for event in served.step().events:
                found.setdefault(event.id, []).extend([*event.tokens, *event.logprobs])
        return found

    assert run("a") == run("")
    session.close()
