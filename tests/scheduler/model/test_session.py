import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from scheduler.batch import Output, pack
from scheduler.config import EngineConfig
from scheduler.engine import PackedEngine
from scheduler.errors import ModelFolderError, StepFailed
from scheduler.model.protocol import Model
from scheduler.model.session import PackedSession
from scheduler.model.spec import ModelSpec
from scheduler.params import SamplingParams
from scheduler.plan import Slice, StepPlan
from scheduler.request import Request
from tests.conftest import ALL_FOLDERS, Packed, model_folder
from tests.scheduler.outputs import output_of
from tests.scheduler.recorder import Recorder

CONFIG = EngineConfig(slots=5, context=200, step_rows=32, threads=2)


def opened(folder: Path, config: EngineConfig = CONFIG) -> PackedSession:
    return PackedSession(ModelSpec.from_folder(folder), config)


def generate(session: Model, requests: dict[int, list[Request]]) -> dict[str, list[int]]:
    """Run the requests that arrive at each step until all have ended."""
    engine = PackedEngine(session, CONFIG)
    out: dict[str, list[int]] = {}
    step = 0
    while step <= max(requests) or not engine.idle:
        for request in requests.get(step, []):
            engine.add(request)
        for event in engine.step().events:
            assert event.error is None, event
            out.setdefault(event.id, []).extend(event.tokens)
        engine.check()
        step += 1
    return out


def greedy(id_: str, prompt: list[int], count: int) -> Request:
    return Request(id_, tuple(prompt), SamplingParams(max_tokens=count, temperature=0.0))


def run(session: PackedSession, tokens: list[int], *slices: Slice) -> Output:
    """Run slices of requests that all have the same tokens."""
    batch = pack(StepPlan(slices), lambda _: np.array(tokens, np.int32))
    return session.run(batch, np.ones(len(batch.logit_rows), np.float32))


def part(slot: int, start: int, count: int, *, samples: bool = True) -> Slice:
    return Slice(f"{slot}", slot, start, count, decodes=False, samples=samples)


def anonymous_kb() -> int:
    status = Path("/proc/self/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0])


NEAR_TIE = 0.15
"""How far apart in logits two tokens may be for either to be right, in int4 folders: rows are rounded to 8 bits."""


@pytest.mark.parametrize("name", ALL_FOLDERS)
def test_every_architecture_generates_its_oracle_s_tokens_in_mixed_steps(name: str, packed: Packed) -> None:
    cases = json.loads((model_folder(name) / "oracle.json").read_text())["cases"]
    arrivals = {3 * i: [greedy(f"{i}", case["ids"], len(case["tokens"]))] for i, case in enumerate(cases)}
    recorder = Recorder(opened(packed(name)))
    out = generate(recorder, arrivals)
    for i, case in enumerate(cases):
        for token, oracle, logits in zip(out[f"{i}"], case["tokens"], recorder.seen[f"{i}"], strict=True):
            if token != oracle:  # the texts part here
                assert name.endswith("int4")
                assert logits[token] - logits[oracle] < NEAR_TIE
                break


prompts = st.lists(st.integers(7, 600), min_size=1, max_size=90)


@given(st.lists(st.tuples(prompts, st.integers(1, 12), st.integers(0, 10)), min_size=1, max_size=7))
@settings(max_examples=40, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_on_a_real_folder_each_request_gets_in_company_what_it_gets_alone(
    packed: Packed, arrivals: list[tuple[list[int], int, int]]
) -> None:
    session = opened(packed("llama-int4"))
    together: dict[int, list[Request]] = {}
    for i, (prompt, count, at) in enumerate(arrivals):
        together.setdefault(at, []).append(greedy(f"{i}", prompt, count))
    out = generate(session, together)
    for i, (prompt, count, _) in enumerate(arrivals):
        assert out[f"{i}"] == generate(session, {0: [greedy("solo", prompt, count)]})["solo"]


def test_a_slot_costs_memory_only_as_tokens_arrive_and_gives_it_back(packed: Packed) -> None:
    config = EngineConfig(slots=64, context=200_000, step_rows=512, threads=1)
    spec = ModelSpec.from_folder(packed("llama-int4"))
    assert config.slots * config.context * spec.kv_bytes_per_token > 10 * 2**30
    before = anonymous_kb()
    session = PackedSession(spec, config)
    opened_kb = anonymous_kb()
    for slot in range(8):
        for start in range(0, 2000, 500):
            run(session, [9] * 2000, part(slot, start, 500))
    filled_kb = anonymous_kb()
    for slot in range(8):
        session.release(slot, 1000)
    half_kb = anonymous_kb()
    for slot in range(8):
        session.release(slot)
    cache_kb = 8 * 2000 * spec.kv_bytes_per_token // 1024
    assert opened_kb - before < 100_000
    assert filled_kb - opened_kb > cache_kb
    assert 0.4 * cache_kb < filled_kb - half_kb < 0.6 * cache_kb
    assert filled_kb - anonymous_kb() > 0.9 * cache_kb


def test_the_shapes_a_session_has_met_leave_nothing_behind(default_model: Path) -> None:
    session = opened(default_model)

    def prefill(rows: int, width: int) -> None:
        run(session, [9] * rows, *(part(i, 0, rows, samples=i == 0) for i in range(width)))

    for _ in range(2):
        prefill(32, 5)  # all that the cache and the arena need
    before = anonymous_kb()
    for rows in range(1, 33):
        for width in range(1, 6):
            prefill(rows, width)
    assert anonymous_kb() - before < 2000  # 160 shapes; a record of each took twice that


def test_a_step_that_samples_nobody_runs(packed: Packed) -> None:
    session = opened(packed("llama-int4"))
    assert run(session, list(range(10, 30)), part(0, 0, 8, samples=False)).logits.shape == (0, 640)


def test_a_failed_run_raises_and_the_next_one_succeeds(packed: Packed) -> None:
    session = opened(packed("llama-int4"))
    for tokens, wrong in (
        ([10**6] * 4, part(0, 0, 4)),  # no such row in the embedding
        ([10] * 4, part(CONFIG.slots, 0, 4)),
        ([10] * 4, part(-1, 0, 4)),
        ([10] * (10 * CONFIG.context), part(0, 2 * CONFIG.context, 4)),
    ):
        with pytest.raises(StepFailed):
            run(session, tokens, wrong)
    assert np.isfinite(run(session, [10, 11, 12, 13], part(0, 0, 4)).logits).all()


def test_the_likeliest_tokens_and_the_mass_are_those_of_the_logits(packed: Packed) -> None:
    found = run(opened(packed("llama-int4")), list(range(10, 30)), *(part(slot, 0, 9 + slot) for slot in range(4)))
    wanted = output_of(found.logits, np.ones(4, np.float32))
    assert np.array_equal(found.top_ids, wanted.top_ids)
    assert np.array_equal(found.top_values, wanted.top_values)
    np.testing.assert_allclose(found.mass, wanted.mass, rtol=1e-5)


@given(st.integers(1, 100), st.integers(1, 30))
@settings(max_examples=20, suppress_health_check=[HealthCheck.function_scoped_fixture])
def test_a_slot_that_was_given_a_copy_goes_on_bit_for_bit_like_its_source(
    packed: Packed, given_: int, more: int
) -> None:
    session = opened(packed("llama-int4"))
    tokens = [10 + i % 600 for i in range(given_ + more)]
    run(session, tokens, part(1, 0, given_ + more))  # the source holds more than is copied
    session.copy(1, 3, given_)
    alone = run(session, tokens, part(0, 0, given_ + more)).logits.copy()
    assert np.array_equal(run(session, tokens, part(3, given_, more)).logits, alone)


def test_a_folder_that_is_not_packed_is_refused_with_what_to_do() -> None:
    with pytest.raises(ModelFolderError, match="import"):
        opened(model_folder("llama-int4"))
