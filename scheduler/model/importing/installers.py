"""Fetches one wheel's files by whichever installer is there: pip, or uv where an environment has no pip.

    pip of this environment, and what pipx shares with it
    uv                  which began this process, or is installed here or on the path; it fetches no wheels, it unpacks
    pip's own wheel     which Python carries to put pip into new environments; run from the wheel, not installed
    pip on the path     another environment's

Knows nothing of what is in the wheel. Its code is never run.
"""

import os
import re
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from importlib.util import find_spec
from pathlib import Path

from scheduler.model.importing.errors import ImportFailed
from scheduler.model.importing.progress import Progress

_REPORT = re.compile(r"Progress (\d+) of \d+")  # what pip writes with --progress-bar raw


@dataclass(frozen=True, slots=True)
class Installer:
    """A program that fetches packages; `unpacks` says that it leaves a wheel's files instead of the wheel."""

    name: str
    program: tuple[str, ...]
    unpacks: bool = False

    def command(self, requirement: str, sha256: str, folder: Path) -> list[str]:
        """What brings the wheel, or its files, into the folder. An unpacking one is told the hash by a file there."""
        if not self.unpacks:
            command = [*self.program, "download", "--no-deps", "--no-cache-dir", "--only-binary", ":all:"]
            command += ["--no-input", "--disable-pip-version-check", "--progress-bar", self._bar()]
            return [*command, "--dest", str(folder), requirement]
        wanted = folder / "requirement.txt"
        wanted.write_text(f"{requirement} --hash=sha256:{sha256}\n", encoding="utf-8")
        command = [*self.program, "pip", "install", "--no-deps", "--no-cache", "--only-binary", ":all:"]
        command += ["--no-progress", "--python", sys.executable, "--target", str(folder / "files")]
        return [*command, "--require-hashes", "--requirement", str(wanted)]

    def _bar(self) -> str:
        """Name a progress bar that can be read by a program, if this pip is known to have it."""
        if self.program != _OWN_PIP:
            return "off"
        try:
            found = re.match(r"(\d+)\.(\d+)", version("pip"))
        except PackageNotFoundError:
            return "off"
        return "raw" if found and (int(found[1]), int(found[2])) >= (24, 1) else "off"


_OWN_PIP = (sys.executable, "-m", "pip")


def installer(environ: Mapping[str, str]) -> Installer | None:
    """The first that is there, by the list above."""
    if find_spec("pip") is not None:
        return Installer("pip", _OWN_PIP)
    path = environ.get("PATH", os.defpath)
    beside = str(Path(sys.executable).parent)
    uv = environ.get("UV") or shutil.which("uv", path=os.pathsep.join([beside, path]))
    if uv and shutil.which(uv):
        return Installer("uv", (uv,), unpacks=True)
    if (wheel := _carried_pip()) is not None:
        return Installer("pip", (sys.executable, str(wheel / "pip")))
    pip = shutil.which("pip", path=path) or shutil.which("pip3", path=path)
    return Installer("pip", (pip,)) if pip else None


def fetch(chosen: Installer, requirement: str, sha256: str, folder: Path, size: int, progress: Progress) -> Path:
    """Bring a wheel into the folder.

    Args:
        chosen: who fetches it.
        requirement: the package and its version.
        sha256: the wheel's; only an installer that unpacks checks it.
        folder: where it may write.
        size: the wheel's bytes, for the progress, which the caller starts and ends.
        progress: told of what came.

    Returns:
        The wheel, not checked yet, or the folder of its files, checked.

    Raises:
        ImportFailed: it could not be fetched; the message ends with what the installer said.
    """
    log = folder / "installer.log"
    command = chosen.command(requirement, sha256, folder)
    with log.open("w", encoding="utf-8") as errors, _started(command, errors.fileno()) as process:
        assert process.stdout is not None
        before = 0
        for line in process.stdout:
            if report := _REPORT.match(line):
                progress.advance(int(report[1]) - before)
                before = int(report[1])
        progress.advance(size - before)
    found = [folder / "files"] if chosen.unpacks else list(folder.glob("*.whl"))
    if process.returncode != 0 or len(found) != 1:
        raise ImportFailed(f"{chosen.name} could not fetch {requirement}: {_said(log)}")
    return found[0]


def _carried_pip() -> Path | None:
    """The wheel of pip that Python carries; some distributions keep it elsewhere or leave it out."""
    spec = find_spec("ensurepip")
    folders = [Path(place) / "_bundled" for place in (spec.submodule_search_locations or [] if spec else [])]
    folders += [Path(place) for place in [sysconfig.get_config_var("WHEEL_PKG_DIR")] if place]
    return next((wheel for folder in folders for wheel in sorted(folder.glob("pip-*.whl"))), None)


def _said(log: Path) -> str:
    """What it said last of an error, with its causes where they follow in lines of their own; else its last line."""
    text = log.read_text(encoding="utf-8", errors="replace")
    lines = [line.strip() for line in text.splitlines() if line.strip()] or ["it said nothing"]
    begins = [number for number, line in enumerate(lines) if line.lower().startswith("error")]
    return " ".join(lines[begins[-1] :] if begins else lines[-1:])


@contextmanager
def _started(command: list[str], errors: int) -> Iterator[subprocess.Popen[str]]:
    """Run a command; it does not outlive the block."""
    with subprocess.Popen(
        command, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=errors, text=True
    ) as process:
        try:
            yield process
        except BaseException:
            process.kill()
            raise
