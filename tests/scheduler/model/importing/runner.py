"""A small, slow runner of packed graphs: it reads the contract in `pack.py` once more, independently of the engine.

Each request owns the slot of its own number; a step takes all that are in flight.
"""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import onnxruntime as ort

Floats = npt.NDArray[np.float32]


@dataclass(frozen=True)
class Rows:
    """The tokens of one slot in one step; `prefill` says through which group they go."""

    slot: int
    tokens: list[int]
    prefill: bool


@dataclass
class Runner:
    """Runs steps over `slots` slots of `capacity` tokens."""

    folder: Path
    slots: int = 4
    capacity: int = 256
    cache: dict[str, Floats] = field(default_factory=dict)

    def __post_init__(self) -> None:
        options = ort.SessionOptions()
        options.intra_op_num_threads = 1
        options.log_severity_level = 3
        self.session = ort.InferenceSession(self.folder / "model.onnx", options, providers=["CPUExecutionProvider"])
        for value in self.session.get_inputs():
            if value.name.startswith("decode_past."):
                _, heads, _, size = value.shape
                self.cache[value.name.removeprefix("decode_past.")] = np.zeros(
                    (self.slots, heads, self.capacity, size), np.float32
                )
        self.length = np.zeros(self.slots, np.int64)

    def step(self, rows: list[Rows]) -> Floats:
        """Run the rows; returns the logits of each one's last token, [len(rows), V]."""
        binding = self.session.io_binding()
        binding.bind_output("logits", "cpu")
        starts = np.cumsum([0, *(len(row.tokens) for row in rows)])
        decode = {row.slot: (int(start), 1) for row, start in zip(rows, starts, strict=False) if not row.prefill}
        prefill = {r.slot: (int(s), len(r.tokens)) for r, s in zip(rows, starts, strict=False) if r.prefill}
        size = max((count for _, count in prefill.values()), default=1)
        self._bind(binding, "decode", decode, 1)
        self._bind(binding, "prefill", prefill, size)
        padded_decode = self.slots if decode else 1
        unpad = [
            place
            for row in rows
            for place in (
                padded_decode + row.slot * size + np.arange(len(row.tokens)) if row.prefill else np.array([row.slot])
            )
        ]
        _feed(binding, "input_ids", np.array([[token for row in rows for token in row.tokens]], np.int64))
        _feed(binding, "unpad", np.array(unpad, np.int64))
        _feed(binding, "logit_rows", starts[1:].astype(np.int64) - 1)
        self.session.run_with_iobinding(binding)
        for row in rows:
            self.length[row.slot] += len(row.tokens)
        logits: Floats = binding.get_outputs()[0].numpy()[0]
        return logits

    def _bind(self, binding: ort.IOBinding, group: str, taken: dict[int, tuple[int, int]], size: int) -> None:
        slots = self.slots if taken else 1
        index, count = np.zeros((slots, size), np.int64), np.zeros(slots, np.int32)
        for slot, (start, tokens) in taken.items():
            index[slot, :tokens], count[slot] = start + np.arange(tokens), tokens
        after = (self.length + count if taken else np.zeros(1)).astype(np.int32)
        _feed(binding, f"{group}_rows", index.ravel())
        _feed(binding, f"{group}_shape", np.array([slots, size, -1], np.int64))
        _feed(binding, f"{group}_total", np.array(max(int(after.max()), size), np.int32))
        _feed(binding, f"{group}_seqlens_k", np.maximum(after - 1, 0).astype(np.int32))
        _feed(binding, f"{group}_query_seqlens", count)
        for name, buffer in self.cache.items():
            room = buffer if taken else np.zeros((1, *buffer.shape[1:]), np.float32)
            value = ort.OrtValue.ortvalue_from_numpy(room)
            pointer = room.ctypes.data if taken else value.data_ptr()
            binding.bind_input(f"{group}_past.{name}", "cpu", 0, np.float32, room.shape, pointer)
            binding.bind_output(f"{group}_present.{name}", "cpu", 0, np.float32, room.shape, pointer)
            self._alive = [*getattr(self, "_alive", [])[-500:], room, value]


def generate(runner: Runner, prompts: list[list[int]], count: int, banned: list[int], gap: int = 3) -> list[list[int]]:
    """Greedy tokens of every prompt; request i joins at step `gap * i`, so that steps mix prefill and decode."""
    out: list[list[int]] = [[] for _ in prompts]
    for step in range(count + gap * len(prompts)):
        active = [i for i in range(len(prompts)) if step >= gap * i and len(out[i]) < count]
        rows = [Rows(i, [out[i][-1]], False) if out[i] else Rows(i, prompts[i], True) for i in active]
        for i, logits in zip(active, runner.step(rows) if rows else [], strict=True):
            logits[banned] = -np.inf
            out[i].append(int(logits.argmax()))
    return out


def _feed(binding: ort.IOBinding, name: str, array: npt.NDArray[Any]) -> None:
    binding.bind_ortvalue_input(name, ort.OrtValue.ortvalue_from_numpy(np.ascontiguousarray(array)))
