"""The file of all weights that the operators read: each array has its place before any is made.

A graph's nodes hold places; the arrays are made one after the other as the file is written, and kept by nobody. Knows
bytes and their places; not what they mean.
"""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

from scheduler.model.importing.progress import Progress

NAME = "model.onnx.weights"
ALIGNED = 128
"""Places are multiples of this."""

_BEHIND = 8192  # bytes that kernels may fetch ahead

Arrays = Iterable[npt.NDArray[Any]]


@dataclass(frozen=True, slots=True)
class _Entry:
    place: int
    size: int
    make: Callable[[], Arrays]


class WeightFile:
    """Places in a file that is yet to be written."""

    def __init__(self) -> None:
        self._entries: list[_Entry] = []
        self._end = 0
        self._known: dict[object, int] = {}

    def add(self, size: int, make: Callable[[], Arrays], key: object = None) -> int:
        """Reserve a place for `size` bytes, which `make` gives when the file is written; of one key there is one."""
        if key is not None and key in self._known:
            return self._known[key]
        place = -(-self._end // ALIGNED) * ALIGNED
        self._entries.append(_Entry(place, size, make))
        self._end = place + size
        if key is not None:
            self._known[key] = place
        return place

    def has(self, key: object) -> bool:
        """Whether something of that key has its place."""
        return key in self._known

    def floats(self, count: int, read: Callable[[], npt.NDArray[Any]], key: object = None) -> int:
        """Reserve a place for so many float32."""
        return self.add(4 * count, lambda: [np.ascontiguousarray(read(), np.float32)], key)

    def write(self, folder: Path, progress: Progress) -> None:
        """Write the file into a folder."""
        progress.start("write weights", self._end)
        with (folder / NAME).open("wb") as file:
            for entry in self._entries:
                file.write(bytes(entry.place - file.tell()))
                for array in entry.make():
                    file.write(np.ascontiguousarray(array).data)
                    progress.advance(array.nbytes)
                assert file.tell() == entry.place + entry.size, f"the array at {entry.place} has another size"
            file.write(bytes(_BEHIND))
        progress.done()
