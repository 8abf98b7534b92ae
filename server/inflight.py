"""By which names the replies in flight can be cancelled. Knows no HTTP and no threads."""

from collections.abc import Iterable, Iterator
from contextlib import contextmanager


class Inflight:
    """Names of replies and the scheduler's requests behind them; a client may give the same name to several."""

    def __init__(self) -> None:
        self._names: dict[str, list[tuple[str, ...]]] = {}

    @contextmanager
    def named(self, names: Iterable[str], ids: tuple[str, ...]) -> Iterator[None]:
        """For the length of a block, the requests can be found under each of the names."""
        names = set(names)
        for name in names:
            self._names.setdefault(name, []).append(ids)
        try:
            yield
        finally:
            for name in names:
                self._names[name].remove(ids)
                if not self._names[name]:
                    del self._names[name]

    def find(self, name: str) -> list[str]:
        """The requests under a name."""
        return [id_ for ids in self._names.get(name, ()) for id_ in ids]
