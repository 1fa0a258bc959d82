"""Files that one process at a time has open for writing."""

from __future__ import annotations

import contextlib
import os
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pathlib import Path


def open_locked(path: Path) -> int | None:
    """Open a file for reading and writing, creating it if it is missing, and lock it.

    Returns:
        a descriptor, which the caller closes; None if another process holds the lock.

    Raises:
        OSError: it cannot be opened, or the file system does not support locks.
    """
    while True:
        flags = os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
        fd = os.open(path, flags, 0o666)
        try:
            if not _lock(fd):
                os.close(fd)
                return None
            # The previous holder may have deleted it in the meantime: then this file has no name any more.
            with contextlib.suppress(FileNotFoundError):
                if os.path.samestat(os.fstat(fd), os.stat(path)):
                    return fd
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


if sys.platform == "win32":
    import msvcrt

    def _lock(fd: int) -> bool:
        try:
            # Far after the end: locked bytes cannot be read by other processes.
            os.lseek(fd, 1 << 40, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(fd, 0, os.SEEK_SET)
        return True

else:
    import fcntl

    def _lock(fd: int) -> bool:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            return False
        return True
