"""A small, slow runner of packed graphs: it reads the contract in `interface` once more, not through the engine.

Each request owns the slot of its own number; a step takes all that are in flight. Pages are handed out in no order, and
hold what must not matter before they are written.
"""

import json
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

from scheduler.model.kernels import library

Floats = npt.NDArray[np.float32]
Likeliest = tuple[npt.NDArray[np.int32], Floats, Floats]
PAGE = 32
BYTES = {"float32": 4, "float16": 2, "int8": 1}


@dataclass(frozen=True)
class Rows:
    """The tokens of one slot in one step."""

    slot: int
    tokens: list[int]


class Runner:
    """Runs steps over `slots` slots of `capacity` tokens."""

    def __init__(self, folder: Path, slots: int = 4, capacity: int = 256) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        options.register_custom_ops_library(str(library.path()))
        self.session = ort.InferenceSession(folder / "model.onnx", options, providers=["CPUExecutionProvider"])
        self._weights = np.fromfile(folder / "model.onnx.weights", np.int8)
        pages = -(-capacity // PAGE)
        order = np.random.default_rng(0).permutation(slots * pages)
        self._tables = order.astype(np.int32).reshape(slots, pages)
        self._cache = np.full((slots * pages, page_bytes(folder)), 0x3C, np.int8)
        self.length = np.zeros(slots, np.int64)

    def step(self, rows: list[Rows]) -> Floats:
        """Run the rows; returns the logits of each one's last token, [len(rows), V]."""
        logits, _ = self.run(rows, [1.0] * len(rows))
        return logits

    def run(self, rows: list[Rows], temperatures: list[float]) -> tuple[Floats, Likeliest]:
        """Run the rows; also what the graph says of the likeliest tokens: ids, logits and mass."""
        counts = [len(row.tokens) for row in rows]
        positions = [self.length[row.slot] + np.arange(count) for row, count in zip(rows, counts, strict=True)]
        feed = {
            "input_ids": np.array([[token for row in rows for token in row.tokens]], np.int64),
            "slots": np.repeat([row.slot for row in rows], counts).astype(np.int32),
            "positions": np.concatenate(positions).astype(np.int32),
            "tables": self._tables,
            "logit_rows": np.cumsum(counts, dtype=np.int64) - 1,
            "temperatures": np.array(temperatures, np.float32),
            "weights": self._weights,
            "cache": self._cache,
        }
        taken = {value.name for value in self.session.get_inputs()}
        logits, ids, values, mass = self.session.run(
            ["logits", "top_ids", "top_values", "mass"], {name: array for name, array in feed.items() if name in taken}
        )
        for row, count in zip(rows, counts, strict=True):
            self.length[row.slot] += count
        return logits[0], (ids, values, mass)


def page_bytes(folder: Path) -> int:
    """Bytes of a page of a packed folder's cache: 32 tokens of all layers, as the contract has it."""
    decoder = json.loads((folder / "genai_config.json").read_text())["model"]["decoder"]
    kind = json.loads((folder / "paceline.json").read_text())["kv_cache"]
    channels = -(-decoder["head_size"] // 16) * 16
    unit = PAGE * channels * BYTES[kind] + (4 * PAGE if kind == "int8" else 0)
    return int(decoder["num_hidden_layers"] * 2 * decoder["num_key_value_heads"] * unit)


def generate(runner: Runner, prompts: list[list[int]], count: int, banned: list[int], gap: int = 3) -> list[list[int]]:
    """Greedy tokens of every prompt; request i joins at step `gap * i`, so that steps mix prefill and decode."""
    out: list[list[int]] = [[] for _ in prompts]
    for step in range(count + gap * len(prompts)):
        active = [i for i in range(len(prompts)) if step >= gap * i and len(out[i]) < count]
        rows = [Rows(i, [out[i][-1]] if out[i] else prompts[i]) for i in active]
        for i, logits in zip(active, runner.step(rows) if rows else [], strict=True):
            logits[banned] = -np.inf
            out[i].append(int(logits.argmax()))
    return out


def gaps(
    runner: Runner, prompts: list[list[int]], answers: list[list[int]], banned: list[int], gap: int = 3
) -> list[list[float]]:
    """By how much the largest logit exceeds that of each answer's next token, given the ones before it.

    Request i joins at step `gap * i`, so that steps mix prefill and decode. All are 0 where the answers are the greedy
    ones.
    """
    out: list[list[float]] = [[] for _ in prompts]
    for step in range(len(answers[0]) + gap * len(prompts)):
        active = [i for i in range(len(prompts)) if step >= gap * i and len(out[i]) < len(answers[i])]
        rows = [Rows(i, [answers[i][len(out[i]) - 1]] if out[i] else prompts[i]) for i in active]
        for i, logits in zip(active, runner.step(rows) if rows else [], strict=True):
            logits[banned] = -np.inf
            out[i].append(float(logits.max() - logits[answers[i][len(out[i])]]))
    return out
