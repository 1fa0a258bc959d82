"""File descriptors: anonymous files, and numbers above those of the standard streams, which a service may lack."""

from __future__ import annotations

import os


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
    import fcntl

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
