"""What some file systems lack, asked of all: locks, flushing, modes. Where one is missing the work goes on without it.

Network and user-space file systems (NFS, CIFS, Lustre, FUSE) refuse one or the other with an error of their own choice.
"""

import errno
import fcntl
import os
from contextlib import suppress
from pathlib import Path

_LACKING = {errno.EINVAL, errno.ENOLCK, errno.ENOSYS, errno.ENOTSUP, errno.EOPNOTSUPP, errno.ENOTTY, errno.EBADF}


def lock(handle: int) -> bool:
    """Wait for a file's lock and hold it; False where the file system has no locks.

    Raises:
        OSError: it has them, and this one cannot be had.
    """
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
    except OSError as error:
        if error.errno not in _LACKING:
            raise
        return False
    return True


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
