"""Reads that bypass the page cache (O_DIRECT), for data much larger than memory, which would evict other pages.

The system requires offset, length and memory in whole blocks. So each range is widened to blocks, all of them are read
into aligned memory at once, and the requested bytes are copied from there. Ranges that the file system refuses are read
in the ordinary way.
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


_logger = logging.getLogger(__name__)

BLOCK = 4096
"""Bytes; a multiple of the logical block of every common disk."""

_FLAG = getattr(os, "O_DIRECT", 0)
_AT_ONCE_NBYTES = 32 << 20
_OPEN_FILES = 64


class DirectReads:
    """Reader of files that bypasses the page cache; used from any thread.

    Args:
        reader: reads many ranges at once.
    """

    def __init__(self, reader: KernelAioReader) -> None:
        self._reader = reader
        self._descriptors = Descriptors(_OPEN_FILES, flags=_FLAG)
        self._idle: deque[mmap.mmap] = deque()
        self._refused = not _FLAG

    def close(self) -> None:
        """Close the files; may be called twice."""
        self._descriptors.close()
        self._idle.clear()

    def read(self, path: str, reads: IntArray, out: memoryview) -> IntArray:
        """Read ranges of a file.

        Args:
            path: of the file.
            reads: int64 (n, 4), columns as in `aioloader.storage.layout.Read`; all of the same file.
            out: writable bytes.

        Returns:
            int64 (n,), bytes read of each; fewer than requested where a read was refused or the file ends.
        """
        got = np.full(len(reads), -1, np.int64)
        if self._refused or not self._reader.available or not len(reads):
            return got
        try:
            with self._descriptors.borrow(int(reads[0, 0]), path) as fd:
                for part in _parts(reads[:, 2]):
                    got[part] = self._read_part(fd, reads[part], out)
        except OSError as error:
            # The ordinary read reports other errors, such as a missing file.
            if error.errno == errno.EINVAL:
                self._refused = True
                _logger.warning(
                    "%s: this file system has no direct reads; the loader uses ordinary reads", path
                )
        return got

    def _read_part(self, fd: int, reads: IntArray, out: memoryview) -> IntArray:
        _, offset, nbytes, place = reads.T
        begin = offset & -BLOCK
        size = -(-(offset + nbytes) // BLOCK) * BLOCK - begin
        where = np.cumsum(size) - size
        scratch = self._borrow(int(size.sum()))
        try:
            with memoryview(scratch) as memory:
                read = self._reader.read(fd, np.stack((reads[:, 0], begin, size, where), axis=1), memory)
                got: IntArray = np.clip(read - (offset - begin), -1, nbytes)
                first = where + offset - begin
                for at, held, to in zip(first.tolist(), got.tolist(), place.tolist(), strict=True):
                    if held > 0:
                        out[to : to + held] = memory[at : at + held]
        finally:
            self._idle.append(scratch)
        return got

    def _borrow(self, nbytes: int) -> mmap.mmap:
        """Return memory of at least `nbytes` bytes that begins at a page."""
        try:
            scratch = self._idle.pop()
        except IndexError:
            scratch = None
        return scratch if scratch is not None and len(scratch) >= nbytes else mmap.mmap(-1, max(nbytes, 1))


def _parts(nbytes: IntArray) -> Iterator[slice]:
    """Iterate over slices of at most 32 MiB, or of one range that is larger."""
    ends = np.cumsum(nbytes)
    low = 0
    while low < len(nbytes):
        done = int(ends[low - 1]) if low else 0
        high = max(low + 1, int(np.searchsorted(ends, done + _AT_ONCE_NBYTES, side="right")))
        yield slice(low, high)
        low = high
