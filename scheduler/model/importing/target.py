"""Writes a folder whole or not at all.

A folder is filled beside its target under a name of its own and takes the target's name by one rename, when everything
is on the disk. A lock file beside the target keeps imports of it apart; whoever waits finds what the other made. Knows
files and locks, nothing of models.
"""

import logging
import os
import re
import shutil
import socket
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from glob import escape
from pathlib import Path

from scheduler.model.importing.errors import ImportFailed
from scheduler.model.importing.file_system import Lock, exchange, flush, lock, open_to_readers
from scheduler.model.importing.progress import Progress

LOGGER = logging.getLogger(__name__)
_CHUNK = 16 << 20
_SCRATCH = re.compile(r"[a-z0-9_]{8}")  # what tempfile appends


@contextmanager
def locked(target: Path, progress: Progress) -> Iterator[None]:
    """Hold the target's lock, and remove what dead imports of it left; whoever has to wait says for whom.

    The lock dies with its holder; its file stays behind, so that nobody locks a file that was removed.

    Raises:
        ImportFailed: The folder that holds the target cannot be written.

    """
    lock = target.with_name(f".{target.name}.lock")
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        handle = os.open(lock, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise ImportFailed(f"{target.parent} cannot be written ({error}): choose another place") from error
    try:
        if _lock(handle, target, progress):
            _sweep(target)
        yield
    finally:
        os.close(handle)


def _lock(handle: int, target: Path, progress: Progress) -> bool:
    """Wait for the lock; False where there are none, and another import's work cannot be told from a dead one's.

    Its file says who holds it, for others to read while they wait.
    """
    try:
        found = lock(handle, wait=False)
        if found is Lock.BUSY:
            progress.start(f"wait for {_holder(handle)}, which makes {target.name} at this moment", None)
            found = lock(handle, wait=True)
            progress.done()
        os.ftruncate(handle, 0)
        os.pwrite(handle, f"process {os.getpid()} on {socket.gethostname()}".encode(), 0)
    except OSError as error:
        raise ImportFailed(f"{target.parent} cannot be locked ({error}): choose another place") from error
    if found is Lock.LACKING:
        LOGGER.warning("the file system of %s has no locks: let one import at a time write there", target.parent)
    return found is Lock.HELD


def _holder(handle: int) -> str:
    return os.pread(handle, 200, 0).decode(errors="replace") or "another import"


def write_folder(target: Path, fill: Callable[[Path], object], check: Callable[[Path], object]) -> None:
    """Make the target what `fill` writes into the folder it is given; an older target is replaced whole.

    The caller holds the target's lock. `check` is given an older target before that, and raises to keep it.

    Raises:
        ImportFailed: The disk is full or the place cannot be written.

    """
    try:
        with scratch(target) as work:
            fill(work)
            open_to_readers(work)
            _flush(work)
            if target.exists():
                check(target)
            _replace(work, target)
    except OSError as error:
        raise ImportFailed(f"{target} could not be written ({error}): make room, or choose another place") from error


@contextmanager
def scratch(target: Path) -> Iterator[Path]:
    """Make a folder beside the target, for a caller who holds its lock; it is removed on the way out."""
    work = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent))
    try:
        yield work
    finally:
        shutil.rmtree(work, ignore_errors=True)


def _sweep(target: Path) -> None:
    """Remove what dead imports left, but for an older target that one of them had put aside and not replaced."""
    for left in target.parent.glob(f"{escape(_prefix(target))}*"):
        if not _SCRATCH.fullmatch(left.name.removeprefix(_prefix(target))) or left.is_symlink() or not left.is_dir():
            continue  # somebody else's, of a like name
        if not target.exists() and (left / target.name).is_dir():
            (left / target.name).rename(target)
        shutil.rmtree(left, ignore_errors=True)


def link_or_copy(source: Path, folder: Path, progress: Progress) -> bool:
    """Bring a big file into the folder under its own name: as a hard link if the file system allows, else copied.

    Returns:
        Whether it is a link.

    """
    origin = source.resolve()
    try:
        os.link(origin, folder / source.name)
    except OSError:
        _copy(origin, folder / source.name, progress)
        return False
    return True


def _copy(origin: Path, copy: Path, progress: Progress) -> None:
    progress.start(f"copy {copy.name}", origin.stat().st_size)
    with origin.open("rb") as reader, copy.open("wb") as writer:
        while chunk := reader.read(_CHUNK):
            writer.write(chunk)
            progress.advance(len(chunk))
    progress.done()


def _prefix(target: Path) -> str:
    return f".{target.name}.import-"


def _flush(folder: Path) -> None:
    """Wait until the folder's files and names are on the disk."""
    for path in (*folder.rglob("*"), folder):
        flush(path)


def _replace(work: Path, target: Path) -> None:
    """Give the finished folder its name. An older one takes that of the folder for work, which its maker removes.

    A folder cannot be renamed over a full one: where the file system cannot exchange two names, the older steps aside.
    """
    if not target.exists():
        work.rename(target)
    elif not exchange(work, target):
        aside = Path(tempfile.mkdtemp(prefix=_prefix(target), dir=target.parent))
        target.rename(aside / target.name)
        work.rename(target)
        shutil.rmtree(aside, ignore_errors=True)
    flush(target.parent)
