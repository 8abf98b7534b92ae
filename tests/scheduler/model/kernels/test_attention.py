"""Attention over pages against numpy in float64: every option, cache and instruction set, in any order of work."""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

import numpy as np
import pytest
from numpy.typing import NDArray

from scheduler.model.kernels import library
from tests.scheduler.model.kernels.operators import PAGE, Array, Bytes, run

TOLERANCE = {0: 2e-5, 1: 2e-3, 2: 4e-2}  # float32, float16, int8: of values around 1
CONTEXT = 160


@pytest.fixture(params=library.available(), autouse=True)
def kernels(request: pytest.FixtureRequest) -> Iterator[str]:
    library.select(request.param)
    yield request.param
    library.select(None)


@dataclass
class Case:
    """A model's attention and the texts that it is given."""

    heads: int = 6
    kv_heads: int = 2
    d: int = 32
    rotary: int = 32
    interleaved: bool = False
    window: int = 0
    softcap: float = 0.0
    sinks: bool = False
    norms: bool = False
    kind: int = 0
    scale: float = 0.2
    texts: list[int] = field(default_factory=lambda: [90, 33, 1, 64])
    layers: int = 2

    def __post_init__(self) -> None:
        rng = np.random.default_rng(0)
        self.file = Bytes()
        angles = np.arange(CONTEXT)[:, None] * 10_000.0 ** -(np.arange(0, self.rotary, 2) / max(self.rotary, 1))
        self.cos, self.sin = np.cos(angles).astype(np.float32), np.sin(angles).astype(np.float32)
        self.sink_scores = rng.normal(size=self.heads).astype(np.float32)
        self.q_norm, self.k_norm = rng.uniform(0.5, 2, (2, self.d)).astype(np.float32)
        width = (self.heads + 2 * self.kv_heads) * self.d
        self.rows = [rng.normal(size=(length, width)).astype(np.float32) for length in self.texts]

    def attributes(self) -> dict[str, float]:
        d, file = self.d, self.file
        found: dict[str, float] = {"heads": self.heads, "kv_heads": self.kv_heads, "head_size": d, "kind": self.kind}
        found |= {"layer": self.layers - 1, "layers": self.layers, "scale": self.scale, "window": self.window}
        found |= {"k_at": self.heads * d, "v_at": (self.heads + self.kv_heads) * d, "softcap": self.softcap}
        if self.rotary:
            found |= {"rotary": self.rotary, "interleaved": int(self.interleaved), "table_rows": CONTEXT}
            found |= {"cos_at": file.add(self.cos), "sin_at": file.add(self.sin)}
        if self.sinks:
            found["sinks_at"] = file.add(self.sink_scores)
        if self.norms:
            found |= {"q_norm_at": file.add(self.q_norm), "k_norm_at": file.add(self.k_norm), "norm_epsilon": 1e-6}
        return found

    def page_bytes(self) -> int:
        dp = -(-self.d // 16) * 16
        unit = PAGE * dp * (4, 2, 1)[self.kind] + 128 * (self.kind == 2)
        return self.layers * 2 * self.kv_heads * unit


class Session:
    """A case with its cache, filled with what must not matter, and block tables in no order."""

    def __init__(self, case: Case, seed: int = 0) -> None:
        rng = np.random.default_rng(seed)
        width = -(-CONTEXT // PAGE)
        slots = len(case.texts)
        self.case = case
        self.attributes = case.attributes()
        self.tables = rng.permutation(slots * width).astype(np.int32).reshape(slots, width)
        self.cache = rng.integers(-128, 128, (slots * width, case.page_bytes())).astype(np.int8)
        self.weights = case.file.array()

    def step(self, slices: list[tuple[int, int, int]]) -> list[Array]:
        """Attend for slices (slot, first, count); the outputs of each, [count, heads * d]."""
        rows = np.concatenate([self.case.rows[slot][first : first + count] for slot, first, count in slices])[None]
        slots = np.concatenate([np.full(count, slot, np.int32) for slot, _, count in slices])
        positions = np.concatenate([np.arange(first, first + count, dtype=np.int32) for _, first, count in slices])
        inputs = [rows, rows, rows, slots, positions, self.tables, self.weights, self.cache]
        (y,) = run("Attention", inputs, [np.float32], **self.attributes)
        return np.split(y[0], np.cumsum([count for _, _, count in slices])[:-1])


def turned(case: Case, x: NDArray[np.float64], norm: Array) -> NDArray[np.float64]:
    """Heads [T, H, d], normed and turned by their positions."""
    if case.norms:
        x = x / np.sqrt((x**2).mean(axis=-1, keepdims=True) + 1e-6) * norm
    if not case.rotary:
        return x
    y, cos, sin = x.copy(), case.cos[: len(x), None].astype(float), case.sin[: len(x), None].astype(float)
    half = case.rotary // 2
    first = slice(0, case.rotary, 2) if case.interleaved else slice(0, half)
    second = slice(1, case.rotary, 2) if case.interleaved else slice(half, case.rotary)
    u, v = x[..., first], x[..., second]
    y[..., first], y[..., second] = u * cos - v * sin, v * cos + u * sin
    return y


def oracle(case: Case, slot: int) -> NDArray[np.float64]:
    """A text's attention, [T, heads * d]."""
    heads, kv, d = case.heads, case.kv_heads, case.d
    rows = case.rows[slot].astype(np.float64).reshape(-1, heads + 2 * kv, d)
    q, k = turned(case, rows[:, :heads], case.q_norm), turned(case, rows[:, heads : heads + kv], case.k_norm)
    v = rows[:, heads + kv :]
    group, length = heads // kv, len(rows)
    scores = np.einsum("thd,shd->hts", q, np.repeat(k, group, axis=1)) * case.scale
    if case.softcap:
        scores = np.tanh(scores / case.softcap) * case.softcap
    seen = np.tri(length, dtype=bool)
    if case.window:
        seen &= ~np.tri(length, k=-case.window, dtype=bool)
    scores = np.where(seen, scores, -np.inf)
    most = scores.max(axis=-1, keepdims=True)
    weights = np.exp(scores - most)
    total = weights.sum(axis=-1, keepdims=True)
    if case.sinks:
        total += np.exp(case.sink_scores.astype(float)[:, None, None] - most)
    summed: NDArray[np.float64] = np.einsum("hts,shd->thd", weights / total, np.repeat(v, group, axis=1))
    return summed.reshape(length, -1)


CASES = {
    "plain": Case(),
    "no rotary": Case(rotary=0),
    "partial": Case(rotary=16, d=48),
    "interleaved": Case(interleaved=True),
    "window": Case(window=37),
    "window of one": Case(window=1),
    "soft cap": Case(softcap=2.0),
    "sinks": Case(sinks=True, window=20),
    "norms": Case(norms=True),
    "one head each": Case(heads=4, kv_heads=4),
    "many heads to one": Case(heads=14, kv_heads=1, d=64, rotary=64),
    "wide heads": Case(heads=2, kv_heads=1, d=256, rotary=256, scale=0.06),
    "odd width": Case(heads=3, kv_heads=3, d=20, rotary=8),
}


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("name", CASES)
def test_every_option_is_what_float64_says(name: str, kind: int) -> None:
    case = replace(CASES[name], kind=kind)
    together = Session(case).step([(slot, 0, length) for slot, length in enumerate(case.texts)])
    for slot, y in enumerate(together):
        np.testing.assert_allclose(y, oracle(case, slot), atol=TOLERANCE[kind], rtol=0)


def schedule(rng: np.random.Generator, case: Case) -> Iterator[list[tuple[int, int, int]]]:
    """Steps that compute every text in chunks of any size, in any company, some of it twice."""
    done = [0] * len(case.texts)
    again = 3
    while any(d < length for d, length in zip(done, case.texts, strict=True)):
        slices = []
        for slot in rng.permutation(len(done)).tolist():
            left = case.texts[slot] - done[slot]
            if left and rng.random() < 0.8:
                count = 1 if rng.random() < 0.5 else int(rng.integers(1, left + 1))
                slices.append((slot, done[slot], count))
                done[slot] += count
        if slices:
            yield slices
        if again and rng.random() < 0.1:
            again -= 1
            done[int(rng.integers(len(done)))] = 0


@pytest.mark.parametrize("kind", [0, 1, 2])
@pytest.mark.parametrize("name", ["plain", "window", "sinks", "many heads to one"])
def test_a_row_s_bits_do_not_depend_on_chunks_company_or_what_lay_in_the_pages(name: str, kind: int) -> None:
    case = replace(CASES[name], kind=kind)
    wanted = [Session(case, seed=1).step([(slot, 0, length)])[0] for slot, length in enumerate(case.texts)]
    for seed in range(4):
        session = Session(case, seed)
        for slices in schedule(np.random.default_rng(seed), case):
            for (slot, first, count), y in zip(slices, session.step(slices), strict=True):
                assert np.array_equal(y, wanted[slot][first : first + count]), (seed, slot, first, count)


def test_separate_inputs_are_as_one() -> None:
    case = CASES["plain"]
    packed, session = Session(case).step([(0, 0, 50)])[0], Session(case)
    rows, d = case.rows[0][:50], case.d
    parts = np.split(rows, [case.heads * d, (case.heads + case.kv_heads) * d], axis=1)
    inputs: list[Array] = [*(np.ascontiguousarray(part)[None] for part in parts), np.zeros(50, np.int32)]
    inputs += [np.arange(50, dtype=np.int32), session.tables, session.weights, session.cache]
    (y,) = run("Attention", inputs, [np.float32], **{**session.attributes, "k_at": 0, "v_at": 0})
    assert np.array_equal(y[0], packed)


def test_what_is_no_number_stays_with_its_text() -> None:
    for kind in (0, 1, 2):
        case = replace(CASES["plain"], kind=kind)
        clean = Session(case).step([(0, 0, 40), (1, 0, 33)])
        case.rows[0][20, -5] = np.nan
        spoilt = Session(case).step([(0, 0, 40), (1, 0, 33)])
        assert np.array_equal(clean[1], spoilt[1])
        assert np.array_equal(clean[0][:20], spoilt[0][:20])
        assert not np.isfinite(spoilt[0][20:]).all()


def test_values_beyond_float16_are_its_largest() -> None:
    case = replace(CASES["plain"], kind=1, texts=[3])
    case.rows[0][:] = 1e6
    assert np.isfinite(Session(case).step([(0, 0, 3)])[0]).all()


@pytest.mark.parametrize(
    ("field", "index", "value"),
    [
        *[("slots", 0, 9), ("slots", 0, -1), ("positions", 2, 100_000), ("positions", 2, -1)],
        *[("tables", 0, 10**6), ("tables", 0, -1)],
    ],
)
def test_an_index_that_is_not_there_is_an_error(field: str, index: int, value: int) -> None:
    session = Session(CASES["plain"])
    rows = session.case.rows[0][:3][None]
    arrays: dict[str, Array] = {
        "slots": np.zeros(3, np.int32),
        "positions": np.arange(3, dtype=np.int32),
        "tables": session.tables,
    }
    arrays[field].reshape(-1)[index] = value
    inputs = [rows, rows, rows, *arrays.values(), session.weights, session.cache]
    with pytest.raises(Exception, match=r"not there|behind the end"):
        run("Attention", inputs, [np.float32], **session.attributes)


@pytest.mark.parametrize(
    "change", [{"cos_at": 1 << 40}, {"layers": 3}, {"kind": 1}, {"heads": 60}, {"v_at": 10**6}, {"sinks_at": 1 << 40}]
)
def test_a_node_that_does_not_fit_its_tensors_is_an_error(change: dict[str, int]) -> None:
    session = Session(CASES["plain"])
    session.attributes |= change
    with pytest.raises(Exception, match=r"attention node|cache has pages|rotary tables|sinks"):
        session.step([(0, 0, 3)])
