"""State of the page cache and the disk: how much of a file is in memory, and how long reads wait.

Slow disks and network file systems are recognized by the measured waiting time. Where reads wait for long, several of
them are made at the same time, and a gap between two records is read along if that takes no longer than another read
would wait.

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


_CACHESTAT = 451  # the same on all architectures
_CHECK_S = 1.0
# A check of a large file takes a while: this share of the time, at most.
_CHECK_SHARE = 1 / 50
_fadvise = getattr(os, "posix_fadvise", None)  # not on every POSIX

LEAST_GAP_BYTES = 16 << 10
_SMALL_GAP_BYTES = 64 << 10
_MOST_GAP_BYTES = 1 << 20
_SLOW_READ_S = 5e-4
# A page in memory, or on a fast disk, is read in less time; such a read says nothing about the disk.
_WAITED_S = 2e-4
_MEMORY = 1 / 4
_COPIED_BYTES_PER_S = 1e9


class _Range(ctypes.Structure):
    _fields_ = (("offset", ctypes.c_uint64), ("length", ctypes.c_uint64))


class _Pages(ctypes.Structure):
    _fields_ = tuple(
        (name, ctypes.c_uint64) for name in ("cached", "dirty", "writeback", "evicted", "recently_evicted")
    )


def cached_pages(fd: int, offset: int = 0, nbytes: int = 0) -> int | None:
    """Return the number of pages of a file that are in memory; None where the system does not report it.

    Args:
        fd: the file.
        offset: where to begin.
        nbytes: how far to count, in bytes; 0: to the end of the file.
    """
    if sys.platform != "linux" or sys.maxsize < 2**32:
        return None
    pages = _Pages()
    part = _Range(offset, nbytes)
    call = ctypes.CDLL(None, use_errno=True).syscall
    call.restype = ctypes.c_long
    done = call(
        ctypes.c_long(_CACHESTAT),
        ctypes.c_uint(fd),
        ctypes.byref(part),
        ctypes.byref(pages),
        ctypes.c_uint(0),
    )
    return None if done < 0 else int(pages.cached)


def resident(fd: int, offset: int, nbytes: int) -> bool:
    """Return whether a range of a file, at least one byte long, is in memory, at least 7/8 of its pages.

    Missing pages are announced to the system, which reads them without a wait here.
    """
    pages = (offset + nbytes - 1) // mmap.PAGESIZE - offset // mmap.PAGESIZE + 1
    cached = cached_pages(fd, offset, nbytes)
    if cached is None or cached * 8 < pages * 7:
        return False
    if cached < pages:
        read_ahead(fd, offset, nbytes)
    return True


def read_ahead(fd: int, offset: int, nbytes: int) -> None:
    """Make the system read a range of a file from the disk into the page cache, without waiting for it."""
    if _fadvise is not None:
        _fadvise(fd, offset, nbytes, os.POSIX_FADV_WILLNEED)


class Residency:
    """Record of whether some files are completely in the page cache, as of about a second ago.

    Attributes:
        complete: all of them are; False also where the system does not report it.
        known: the system reports it.
        next_check: time of `time.monotonic` from which `check` is to be called again.
    """

    def __init__(self) -> None:
        self.next_check = 0.0
        self.complete = False
        self.known = False

    def check(self, fds: Sequence[int]) -> None:
        """Query the system about the files. Takes microseconds for each megabyte in memory; from any thread."""
        begin = time.monotonic()
        self.next_check = begin + _CHECK_S  # other threads need not check meanwhile
        cached = [cached_pages(fd) for fd in fds]
        sizes = [os.fstat(fd).st_size for fd in fds]
        self.known = None not in cached
        self.complete = all(
            pages is not None and pages >= -(-size // mmap.PAGESIZE)
            for pages, size in zip(cached, sizes, strict=True)
        )
        end = time.monotonic()
        self.next_check = end + max(_CHECK_S, (end - begin) / _CHECK_SHARE)


class ReadLatency:
    """Moving averages of how long local reads wait. Updated from several threads; a lost update does no harm. Pure.

    Attributes:
        read_s: average seconds that a read waited in the latest calls; 0 before the first.
        ever: reads were slow at some time.
    """

    def __init__(self) -> None:
        self.read_s = 0.0
        self.ever = False
        self._gap = 0.0

    def add(self, seconds: float, count: int, nbytes: int) -> None:
        """Add reads that one thread made one after the other.

        Args:
            seconds: for all of them.
            count: number of reads.
            nbytes: bytes of all; the time of copying them does not count as waiting.
        """
        if count:
            each = max(1e-9, seconds - nbytes / _COPIED_BYTES_PER_S) / count
            self.read_s += (each - self.read_s) * _MEMORY if self.read_s else each
            self.ever = self.ever or self.slow

    @property
    def slow(self) -> bool:
        """Return whether a read waits for half a millisecond or more, or did so a moment ago."""
        return self.read_s > _SLOW_READ_S

    def add_probe(self, first_s: float, rest_s: float, rest_nbytes: int) -> None:
        """Add a read of a range without `read_ahead`.

        Args:
            first_s: seconds for its first page.
            rest_s: seconds for the rest.
            rest_nbytes: bytes of the rest.
        """
        if first_s < _WAITED_S or not rest_nbytes:
            return
        gap = min(_MOST_GAP_BYTES, first_s * rest_nbytes / max(rest_s, 1e-9))
        self._gap += (gap - self._gap) * _MEMORY if self._gap else gap

    def gap_bytes(self, mean_nbytes: float) -> int:
        """Return the longest gap that is read along instead of making a second read, bytes.

        Args:
            mean_nbytes: of the items to read: a gap as long as an item doubles the bytes that are read, at worst.
        """
        return int(max(LEAST_GAP_BYTES, min(self._gap, max(_SMALL_GAP_BYTES, mean_nbytes))))
