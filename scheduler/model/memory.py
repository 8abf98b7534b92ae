"""Memory of a session's own, outside of onnxruntime's arena: the weights, and the pages of the KV cache."""

import mmap
from contextlib import suppress
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from scheduler.model.spec import PAGE

HUGE = 2 * 2**20
"""Bytes of a huge page."""

MAP_NORESERVE = 0x4000
"""Linux's; the mmap module of Python 3.11 has no name for it."""


def read_weights(path: Path) -> NDArray[np.int8]:
    """A file's bytes in anonymous memory that begins at a huge page, since every step reads all of it.

    Raises OSError where it cannot be read.
    """
    with path.open("rb", buffering=0) as file:
        size = path.stat().st_size
        weights, done = on_huge_pages(size), 0
        while count := file.readinto(weights[done:].data):
            done += count
    if done < size:
        raise OSError(f"{path} ends after {done} bytes of {size}")
    return weights


def on_huge_pages(size: int) -> NDArray[np.int8]:
    """Zeros in anonymous memory that begins at a huge page, and lies on such where the kernel has them."""
    room = mmap.mmap(-1, max(size, 1) + HUGE, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    with suppress(OSError):  # a kernel without them
        room.madvise(mmap.MADV_HUGEPAGE)
    whole = np.frombuffer(room, np.int8)
    begin = -whole.ctypes.data % HUGE
    return whole[begin : begin + size]


class Pages:
    """The KV cache: each slot has pages of its own, one after the other, for a whole context.

    The kernel backs what is touched, and `release` gives it back.

    Attributes:
        array: int8 [slots * pages of a slot, bytes of a page].
        tables: int32 [slots, pages of a slot], which page holds each PAGE tokens of a slot.
    """

    def __init__(self, slots: int, context: int, page_bytes: int) -> None:
        self._each = -(-context // PAGE)
        size = slots * self._each * page_bytes
        # Private, since the pages of shared memory would not come back. Nothing is reserved: slots full to the brim may
        # be more than the machine has, and the budget of tokens sees that it never comes to that.
        self._map = mmap.mmap(-1, size, flags=mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | MAP_NORESERVE)
        self.array = np.frombuffer(self._map, np.int8).reshape(-1, page_bytes)
        self.tables = np.arange(slots * self._each, dtype=np.int32).reshape(slots, -1)

    def copy(self, source: int, target: int, tokens: int) -> None:
        """Give a slot the first tokens of another; what lies behind them in the last page is overwritten."""
        if source != target:
            first, second, count = source * self._each, target * self._each, _pages(tokens)
            self.array[second : second + count] = self.array[first : first + count]

    def release(self, slot: int, keep: int) -> None:
        """Give back a slot's memory, but for the pages that `keep` tokens take."""
        page = self.array.shape[1]
        start, end = (slot * self._each + _pages(keep)) * page, (slot + 1) * self._each * page
        first, last = -(-start // mmap.PAGESIZE) * mmap.PAGESIZE, end // mmap.PAGESIZE * mmap.PAGESIZE
        if last > first:  # the ragged ends are shared with what lies beside them
            self._map.madvise(mmap.MADV_DONTNEED, first, last - first)


def _pages(tokens: int) -> int:
    return -(-tokens // PAGE)
