"""What some file systems lack, asked of all: locks, flushing, modes. Where one is missing the work goes on without it.

Network and user-space file systems (NFS, CIFS, Lustre, FUSE) refuse one or the other with an error of their own choice.
"""

import ctypes
import errno
import fcntl
import os
from contextlib import suppress
from enum import Enum, auto
from pathlib import Path

_HERE = -100  # AT_FDCWD
_EXCHANGE = 2  # RENAME_EXCHANGE
_LACKING = {errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.EBADF}


class Lock(Enum):
    """What came of asking for a lock: it is held, somebody else holds it, or the file system has none."""

    HELD = auto()
    BUSY = auto()
    LACKING = auto()


def lock(handle: int, *, wait: bool) -> Lock:
    """Ask for a file's lock, and wait for it or not.

    Raises:
        OSError: there are locks, and this one cannot be had.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX if wait else fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return Lock.BUSY
    except OSError as error:
        if error.errno not in _LACKING:
            raise
        return Lock.LACKING
    return Lock.HELD


def exchange(one: Path, other: Path) -> bool:
    """Swap the names of two files or folders in one move; False where the system cannot.

    Raises:
        OSError: it can, and these may not be swapped.
    """
    libc = ctypes.CDLL(None, use_errno=True)
    if not hasattr(libc, "renameat2"):  # a C library other than GNU's
        return False
    if libc.renameat2(_HERE, os.fsencode(one), _HERE, os.fsencode(other), _EXCHANGE) == 0:
        return True
    code = ctypes.get_errno()
    if code in _LACKING:
        return False
    raise OSError(code, os.strerror(code), str(other))


def flush(path: Path) -> None:
    """Wait until a file, or a folder's names, are on the disk, where the file system can tell."""
    handle = os.open(path, os.O_RDONLY)
    try:
        os.fsync(handle)
    except OSError as error:
        if error.errno not in _LACKING:
            raise
    finally:
        os.close(handle)


def open_to_readers(folder: Path) -> None:
    """Let others read a folder that was made for its owner alone; file systems without modes have it so already."""
    with suppress(OSError):
        folder.chmod(0o755)
