"""Locks of files between processes: flock(2), locks of single bytes on Linux, and Windows' lock of a byte."""

from __future__ import annotations

import errno
import os
import struct
import sys
import time

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

# struct flock of 64-bit Linux: type, whence, start, length, process.
_LOCK = struct.Struct("hhqqi4x")


def try_lock(fd: int, *, shared: bool = False) -> bool:
    """Lock a file until it is closed; return False if another process holds a lock that excludes this one.

    Raises:
        OSError: the system, or the file system, does not support such locks.
    """
    if fcntl is None:
        return _try_lock_windows(fd)
    try:
        fcntl.flock(fd, (fcntl.LOCK_SH if shared else fcntl.LOCK_EX) | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def lock_within(fd: int, seconds: float, *, shared: bool = False) -> bool:
    """Lock a file; return False if other processes hold the lock all the time."""
    deadline = time.monotonic() + seconds
    while not try_lock(fd, shared=shared):
        if time.monotonic() >= deadline:
            return False
        time.sleep(0.001)  # flock has no timeout; other processes hold the lock for microseconds
    return True


def unlock(fd: int) -> None:
    """Undo `try_lock`."""
    fcntl.flock(fd, fcntl.LOCK_UN)


def _try_lock_windows(fd: int) -> bool:
    if sys.platform == "win32":
        import msvcrt

        try:
            # Far after the end: locked bytes cannot be read by other processes.
            os.lseek(fd, 1 << 40, os.SEEK_SET)
            msvcrt.locking(fd, msvcrt.LK_NBLCK, 1)
        except OSError:
            return False
        finally:
            os.lseek(fd, 0, os.SEEK_SET)
        return True
    raise OSError(errno.ENOLCK, "this system has no locks of files")


def try_lock_byte(fd: int, place: int, *, shared: bool = False) -> bool:
    """Lock a byte of an open file, which need not be there, against other open files; return False if one has it."""
    return _set_byte(fd, place, fcntl.F_RDLCK if shared else fcntl.F_WRLCK)


def unlock_byte(fd: int, place: int) -> None:
    """Undo `try_lock_byte`."""
    _set_byte(fd, place, fcntl.F_UNLCK)


def _set_byte(fd: int, place: int, kind: int) -> bool:
    try:
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, _LOCK.pack(kind, os.SEEK_SET, place, 1, 0))
    except (BlockingIOError, PermissionError):
        return False
    return True


def keep_size(fd: int) -> None:
    """Forbid all processes to truncate a memory file."""
    fcntl.fcntl(fd, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK)
