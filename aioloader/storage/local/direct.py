"""Reads that bypass the page cache (O_DIRECT): for sets much larger than memory, which would push out other things.

The system wants offset, length and memory in whole blocks. So each stretch is widened to blocks, all of them are read
into aligned memory at once, and the wanted bytes are copied from there. What the file system refuses is read in the
ordinary way.
"""

from __future__ import annotations

import errno
import logging
import mmap
import os
from collections import deque
from typing import TYPE_CHECKING

import numpy as np

from aioloader.storage.local.descriptors import Descriptors

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.foundation.types import IntArray
    from aioloader.storage.local.kernel_aio import KernelAioReader

__all__ = ("DirectReads",)

_logger = logging.getLogger(__name__)

BLOCK = 4096
"""Bytes; a multiple of the logical block of every common disk."""

_FLAG = getattr(os, "O_DIRECT", 0)
_AT_ONCE_NBYTES = 32 << 20
_OPEN_FILES = 64


class DirectReads:
    """Reads files past the page cache; from any thread.

    Args:
        gather: reads many stretches at once.
    """

    def __init__(self, gather: KernelAioReader) -> None:
        self._gather = gather
        self._descriptors = Descriptors(_OPEN_FILES, flags=_FLAG)
        self._idle: deque[mmap.mmap] = deque()
        self._refused = not _FLAG

    def close(self) -> None:
        """Close the files; may be called twice."""
        self._descriptors.close()
        self._idle.clear()

    def read(
        self, number: int, path: str, offset: IntArray, nbytes: IntArray, out: memoryview, place: IntArray
    ) -> IntArray:
        """Read stretches of a file.

        Args:
            number, path: of the file.
            offset, nbytes: int64 (n,), the stretches.
            out: writable bytes.
            place: int64 (n,), where in `out` each goes.

        Returns:
            int64 (n,), bytes that were read of each; less than asked for where it was refused, or the file ends.
        """
        got = np.full(len(offset), -1, np.int64)
        if self._refused or not self._gather.available:
            return got
        try:
            with self._descriptors.borrow(number, path) as fd:
                for part in _parts(nbytes):
                    got[part] = self._some(fd, offset[part], nbytes[part], out, place[part])
        except OSError as error:
            # A missing file is told by whoever reads it in the ordinary way.
            if error.errno == errno.EINVAL:
                self._refused = True
                _logger.warning("%s: this file system has no direct reads; they are ordinary ones", path)
        return got

    def _some(
        self, fd: int, offset: IntArray, nbytes: IntArray, out: memoryview, place: IntArray
    ) -> IntArray:
        begin = offset & -BLOCK
        size = -(-(offset + nbytes) // BLOCK) * BLOCK - begin
        where = np.cumsum(size) - size
        scratch = self._borrow(int(size.sum()))
        try:
            with memoryview(scratch) as memory:
                read = self._gather.read(fd, begin, size, memory, where)
                got = np.clip(read - (offset - begin), -1, nbytes)
                first = where + offset - begin
                for at, held, to in zip(first.tolist(), got.tolist(), place.tolist(), strict=True):
                    if held > 0:
                        out[to : to + held] = memory[at : at + held]
        finally:
            self._idle.append(scratch)
        return got

    def _borrow(self, nbytes: int) -> mmap.mmap:
        """Memory that begins at a page, of at least so many bytes."""
        try:
            scratch = self._idle.pop()
        except IndexError:
            scratch = mmap.mmap(-1, max(nbytes, mmap.PAGESIZE))
        if len(scratch) < nbytes:
            scratch = mmap.mmap(-1, nbytes)
        return scratch


def _parts(nbytes: IntArray) -> Iterator[slice]:
    """Slices of at most so many bytes as are read at once, or of one stretch."""
    ends = np.cumsum(nbytes)
    low = 0
    while low < len(nbytes):
        done = int(ends[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(ends, done + _AT_ONCE_NBYTES, side="right")))
        yield slice(low, high)
        low = high
