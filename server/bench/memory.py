"""What a process holds in memory, as the kernel says in /proc. Knows no contender."""

import threading
from pathlib import Path
from types import TracebackType

PERIOD = 0.05
"""Seconds between two looks: a look takes 50 microseconds, so a thousandth of a core."""


def memory(pid: int) -> tuple[int, int]:
    """Resident bytes of a process, and of them the anonymous ones (which no file backs); zeros when it is gone."""
    try:
        lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0, 0
    sizes = {name: value for name, _, value in (line.partition(":") for line in lines)}
    rss, anonymous = (int(sizes.get(name, "0 kB").split()[0]) * 1024 for name in ("VmRSS", "RssAnon"))
    return rss, anonymous


class MemoryWatch:
    """Looks at a process for the length of a block; `rss` and `anonymous` are the most it held."""

    def __init__(self, pid: int) -> None:
        self._pid = pid
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._watch, daemon=True)
        self.rss = self.anonymous = 0

    def __enter__(self) -> "MemoryWatch":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()
        self._look()

    def _watch(self) -> None:
        self._look()
        while not self._ended.wait(PERIOD):
            self._look()

    def _look(self) -> None:
        rss, anonymous = memory(self._pid)
        self.rss, self.anonymous = max(self.rss, rss), max(self.anonymous, anonymous)
