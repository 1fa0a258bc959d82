"""File descriptors: anonymous files, locks, and numbers above those of the standard streams, which a service may lack.

Locks between processes are flock(2), on Linux also locks of single bytes, and Windows' lock of a byte.
"""

from __future__ import annotations

import errno
import os
import struct
import sys
import time
from typing import TYPE_CHECKING

try:
    import fcntl
except ImportError:  # Windows
    fcntl = None  # type: ignore[assignment]

if TYPE_CHECKING:
    from collections.abc import Sequence


def above_streams(fd: int) -> int:
    """Return a descriptor of the same file with a number that no standard stream has.

    Without the streams a file that is opened gets number 0, 1 or 2, and a process that inherits it prints to that file.

    Args:
        fd: a descriptor, which is closed if another one replaces it.

    Raises:
        OSError: no number is left.
    """
    if fd > 2:
        return fd
    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


def anonymous_file(name: str) -> int:
    """Return the descriptor of a new file without a path: in memory where the system has memfd.

    Args:
        name: shown in lists of open files.

    Raises:
        OSError: the file cannot be made.
    """
    if hasattr(os, "memfd_create"):
        fd = os.memfd_create(name, os.MFD_CLOEXEC)
    else:
        import tempfile

        fd, path = tempfile.mkstemp(prefix=f"{name}-")
        os.unlink(path)
    return above_streams(fd)


def fill_streams() -> None:
    """Open the null device in place of missing standard streams, so that no other file gets their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # It gets the lowest number that is free: this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)


class SentDescriptors:
    """Descriptors of another process that this process has: their numbers there, and the numbers here.

    A process inherits them with the same numbers. One that lives already receives them with others.
    """

    def __init__(self) -> None:
        self._here: dict[int, int] | None = None

    def take(self, numbers: dict[int, int]) -> None:
        """Take descriptors.

        Args:
            numbers: number in the other process to number in this one.
        """
        self._here = dict(numbers)

    def inherit(self, fds: Sequence[int]) -> None:
        """Take descriptors that this process has inherited; not if it has received others."""
        if self._here is None:
            self._here = {fd: fd for fd in fds}

    def forget(self) -> None:
        """Forget the descriptors, which belong to the process that this one is a fork of."""
        self._here = None

    def here(self, fd: int) -> int:
        """Return the number in this process.

        Raises:
            OSError: this process has not received it.
        """
        if self._here is None:
            return fd
        if fd not in self._here:
            raise OSError(f"descriptor {fd} of the parent process was not received")
        return self._here[fd]

    def close(self, fd: int) -> None:
        """Close a descriptor, by its number in this process."""
        if self._here is not None:
            self._here = {there: here for there, here in self._here.items() if here != fd}
        os.close(fd)

    def close_all(self) -> None:
        """Close all that are left."""
        left, self._here = self._here or {}, {}
        for fd in left.values():
            os.close(fd)


sent_descriptors = SentDescriptors()
"""Of this process, which is a worker if it has any."""


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
