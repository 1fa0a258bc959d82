"""How much of a file is in the page cache.

Source: cachestat(2), Linux 6.5, and linux/mman.h for its structures.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import sys
import time
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Sequence

__all__ = ("Residency", "cached_pages")

_CACHESTAT = 451  # the same on all architectures
_LOOK_S = 1.0
# A look at a large file takes a while: this part of the time, at most.
_SHARE = 1 / 50


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Pages(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


def cached_pages(fd: int) -> int | None:
    """Pages of a file that are in memory; None where the system does not tell."""
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return None
    pages = _Pages()
    all_of_it = _Range(0, 0)
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    done = call(
        ctypes.c_long(_CACHESTAT),
        ctypes.c_uint(fd),
        ctypes.byref(all_of_it),
        ctypes.byref(pages),
        ctypes.c_uint(0),
    )
    return None if done < 0 else int(pages.cached)


class Residency:
    """Whether all of some files is in the page cache, as of a second ago.

    Attributes:
        complete: it is; False also where the system does not tell.
        known: the system tells.
    """

    def __init__(self) -> None:
        self._next_look = 0.0
        self.complete = False
        self.known = False

    @property
    def due(self) -> bool:
        """Whether it is time to `look` again."""
        return time.monotonic() >= self._next_look

    def look(self, fds: Sequence[int]) -> None:
        """Ask the system about these files. Takes microseconds for a megabyte in memory; from any thread."""
        begin = time.monotonic()
        self._next_look = begin + _LOOK_S  # others need not ask meanwhile
        cached = [cached_pages(fd) for fd in fds]
        sizes = [os.fstat(fd).st_size for fd in fds]
        self.known = None not in cached
        self.complete = all(
            pages is not None and pages >= -(-size // mmap.PAGESIZE)
            for pages, size in zip(cached, sizes, strict=True)
        )
        end = time.monotonic()
        self._next_look = end + max(_LOOK_S, (end - begin) / _SHARE)
