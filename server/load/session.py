"""One load test from the first question to the report."""

import asyncio
import signal
import ssl
from collections.abc import Iterator
from pathlib import Path
from urllib.parse import urlsplit

import msgspec
import uvloop
from rich.console import Console
from rich.progress import BarColumn, Progress, TextColumn, TimeElapsedColumn

from server.load.client import Client, Target
from server.load.drive import Run, drive
from server.load.figures import figures
from server.load.page import page
from server.load.prompts import WORDS, Ask, Wanted, from_file, made_up
from server.load.settings import Settings
from server.load.table import show


def measure(settings: Settings, progress: Console, results: Console) -> int:
    """Measure, show and write; the exit status is 1 where nothing was completed.

    Raises ConnectionError where the server does not say what it serves.
    """
    session = _Session(settings, progress)
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # likewise ends it with what there is
    try:
        uvloop.run(session.run())
    except KeyboardInterrupt:
        progress.print("interrupted; this is what was measured:")
    runs = [run for run in session.runs if run.samples]
    found = [figures(run, settings.limits) for run in runs]
    show(results, found, settings.limits)
    words = settings.words(session.model)
    if settings.json is not None:
        report = {"setting": words, "limits": settings.limits, "runs": found}
        settings.json.write_bytes(msgspec.json.format(msgspec.json.encode(report)) + b"\n")
    if settings.html is not None:
        settings.html.write_text(page(words, runs, found), encoding="utf-8")
    return 0 if any(run.completed for run in found) else 1


def target(url: str, key: str, verify: bool | Path) -> Target:
    """Where a URL leads; raises ValueError where it is none."""
    parts = urlsplit(url if "//" in url else f"http://{url}")
    if parts.scheme not in {"http", "https"} or not parts.hostname:
        raise ValueError(f"{url!r} is no http or https URL")
    tls = None
    if parts.scheme == "https":
        tls = ssl.create_default_context(cafile=str(verify) if isinstance(verify, Path) else None)
        if verify is False:
            tls.check_hostname, tls.verify_mode = False, ssl.CERT_NONE
    base = parts.path.rstrip("/").removesuffix("/v1")
    headers = (("authorization", f"Bearer {key}"),) if key else ()
    return Target(parts.hostname, parts.port or (443 if tls else 80), base, tls, headers)


class _Session:
    """The runs of a test, so far."""

    def __init__(self, settings: Settings, console: Console) -> None:
        self.runs: list[Run] = []
        self.model = settings.model
        self._settings = settings
        self._console = console
        self._client = Client(target(settings.url, settings.key, settings.verify), settings.timeout)

    async def run(self) -> None:
        """Run every level."""
        try:
            if not self.model:
                models = msgspec.json.decode(await self._client.get("/v1/models"))
                self.model = models["data"][0]["id"]
            asks = await self._asks()
            for level in self._settings.levels:
                run = Run(level)
                self.runs.append(run)
                with self._progress(run) as progress:
                    await self._driven(run, asks, progress)
        finally:
            self._client.close()

    async def _driven(self, run: Run, asks: Iterator[Ask], progress: Progress) -> None:
        work = asyncio.ensure_future(drive(run, asks, self._client.ask, self._settings.extent))
        bar = progress.add_task("", total=self._settings.extent.requests)
        try:
            while not (await asyncio.wait({work}, timeout=0.25))[0]:
                progress.update(bar, completed=len(run.samples), description=_state(run))
            work.result()
        finally:
            work.cancel()
            await asyncio.wait({work})
            progress.update(bar, completed=len(run.samples), description=_state(run))

    def _progress(self, run: Run) -> Progress:
        columns = (BarColumn(), TextColumn("{task.completed}"), TextColumn("{task.description}"), TimeElapsedColumn())
        return Progress(
            TextColumn(f"[bold]{run.level}[/bold]"),
            *columns,
            console=self._console,
            disable=not self._console.is_terminal,
        )

    async def _asks(self) -> Iterator[Ask]:
        s = self._settings
        fields = {
            "model": self.model,
            "stream": True,
            "stream_options": {"include_usage": True},
            "temperature": 0,
            **s.fields,
        }
        if s.prompts is not None:
            return from_file(s.prompts, s.form, s.answer, fields, s.extent.seed)
        words = 1.0 if s.form == "ids" else await self._words_per_token()
        return made_up(Wanted(s.form, s.prompt, s.answer, s.shared, s.ids, words, fields, s.extent.seed))

    async def _words_per_token(self) -> float:
        """What the server's /tokenize says; 1 where there is none."""
        body = msgspec.json.encode({"model": self.model, "prompt": " ".join(WORDS)})
        try:
            answer = msgspec.json.decode(await self._client.get("/tokenize", body))
            return len(WORDS) / len(answer["tokens"])
        except (ConnectionError, msgspec.DecodeError, LookupError, ZeroDivisionError):
            return 1.0


def _state(run: Run) -> str:
    failed = sum(bool(sample.error) for sample in run.samples)
    return f"{run.under_way} under way" + (f", [red]{failed} failed[/red]" if failed else "")
