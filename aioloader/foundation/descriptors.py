"""Numbers of descriptors in programs that were started without standard streams, as services may be."""

from __future__ import annotations

import os

__all__ = ("above_streams", "fill_streams")


def above_streams(fd: int) -> int:
    """The same file under a number that no standard stream has.

    Without the streams a file that is opened gets number 0, 1 or 2, and a process that inherits it writes into it what
    it prints.

    Args:
        fd: a descriptor, which is closed where another one takes its place.

    Raises:
        OSError: there is no number left.
    """
    if fd > 2:
        return fd
    import fcntl

    try:
        return fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, 3)
    finally:
        os.close(fd)


def fill_streams() -> None:
    """Put the null device in the place of streams that are not there, so that no other file gets their numbers."""
    for number in range(3):
        try:
            os.fstat(number)
        except OSError:
            # It gets the lowest number that is free: this one.
            os.set_inheritable(os.open(os.devnull, os.O_RDWR), True)
