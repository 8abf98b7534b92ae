"""A real `paceline serve` process on a free port of the loopback, and what tests ask of it."""

import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx

COMMAND = str(Path(sys.executable).with_name("paceline"))
ADDRESS = re.compile(r"""address(?:\s+|":")((?:https?://|unix:)[^\s"]+?)(?:/v1)?[\s"]""")


class Live:
    """A serving process.

    Args:
        deaf: its log is not read before its end.
        environ: its whole environment; None is the test's own.
        folder: where it works.
        before: a command that starts it, as `unshare` does.
    """

    def __init__(
        self,
        *arguments: str,
        deaf: bool = False,
        environ: Mapping[str, str] | None = None,
        folder: Path | None = None,
        before: Sequence[str] = (),
    ) -> None:
        self.process = subprocess.Popen(
            [*before, COMMAND, "serve", *arguments, "--port", "0"],
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
            env=environ,
            cwd=folder,
        )
        self.log: list[str] = []
        self.url = self._address()
        self._reader = threading.Thread(target=self._read_on, daemon=True)
        if not deaf:
            self._reader.start()

    def _address(self) -> str:
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log.append(line)
            if found := ADDRESS.search(line):
                return found[1]
        raise AssertionError(f"the server did not come up:\n{''.join(self.log)}")

    def _read_on(self) -> None:
        assert self.process.stderr is not None
        self.log.extend(self.process.stderr)

    def get(self, path: str, **headers: str) -> httpx.Response:
        """GET a path."""
        return httpx.get(self.url + path, headers=headers, timeout=30)

    def post(self, path: str, body: object, **headers: str) -> httpx.Response:
        """POST a JSON body."""
        return httpx.post(self.url + path, json=body, headers=headers, timeout=120)

    def metric(self, name: str) -> float:
        """The value of an unlabelled series, or of the only one with further labels in `name`."""
        return metric(self.get("/metrics").text, name)

    def settled(self) -> None:
        """Return when nothing is in flight; the bound is on questions asked, not on time."""
        for _ in range(5000):
            if self.get("/health").json()["in_flight"] == 0:
                return
        raise AssertionError("requests stay in flight")

    def end(self, *signals: signal.Signals) -> tuple[int, str]:
        """Send signals and wait for the end: exit status and the log."""
        if self._reader.ident is None:
            self._reader.start()
        for number in signals:
            self.process.send_signal(number)
        self.process.wait(timeout=60)
        self._reader.join()
        return self.process.returncode, "".join(self.log)


def metric(text: str, name: str) -> float:
    """One sample of Prometheus' text format; `name` may end in a label, as in `x{reason="y"`."""
    base, _, label = name.partition("{")
    for line in text.splitlines():
        if re.match(re.escape(base) + r"[{ ]", line) and label in line:
            return float(line.rsplit(" ", 1)[1])
    raise AssertionError(f"there is no {name}")


def counts(usage: Any) -> dict[str, Any]:  # noqa: ANN401 - JSON
    """A reply's usage without what depends on what was asked before: the prompt's tokens that needed no computing."""
    return {name: count for name, count in usage.items() if name != "prompt_tokens_details"}


@contextmanager
def serving(*arguments: str, deaf: bool = False) -> Iterator[Live]:
    """A server for the length of a block."""
    live = Live(*arguments, deaf=deaf)
    try:
        yield live
    finally:
        if live.process.poll() is None:
            live.end(signal.SIGTERM)


def told(*arguments: str, **environ: str) -> tuple[int, str]:
    """The exit status and the words, in one line, of a command that ends by itself."""
    done = subprocess.run(
        [COMMAND, *arguments], capture_output=True, text=True, check=False, env={**os.environ, **environ}
    )
    return done.returncode, " ".join((done.stdout + done.stderr).split())
