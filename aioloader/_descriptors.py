"""Numbers of descriptors that processes inherit."""

from __future__ import annotations

import os

__all__ = ("above_streams",)


def above_streams(fd: int) -> int:
    """The same file under a number that no standard stream has.

    In a program that was started without them, as services may be, a file that is opened gets number 0, 1 or 2: then
    what a worker prints would be written into it.

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
