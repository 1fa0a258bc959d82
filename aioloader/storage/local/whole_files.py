"""Files that are one sample each: asked for their sizes, opened, read and closed.

On a slow file system each of these waits. So a batch is cut into parts that are worked off side by side, and the system
is told of several files before the first of them is read.
"""

from __future__ import annotations

import errno
import os
from time import perf_counter
from typing import TYPE_CHECKING

from aioloader.storage.local.descriptors import check_regular, open_regular, read_into
from aioloader.storage.local.read_latency import ReadLatency

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader.foundation.types import IntArray
    from aioloader.storage.layout import Read

__all__ = ("WholeFiles", "announce", "sample_status")

_MAX_FILE_BYTES = 1 << 30
_OPEN_AHEAD = 8
_fadvise = getattr(os, "posix_fadvise", None)  # not on every POSIX


def announce(fd: int, offset: int, nbytes: int) -> None:
    """Have the system fetch a stretch of a file from the disk, without waiting for it."""
    if _fadvise is not None:
        _fadvise(fd, offset, nbytes, os.POSIX_FADV_WILLNEED)


class WholeFiles:
    """Blocking; from several threads at once.

    Args:
        paths: the files.

    Attributes:
        waits: how long reads take; size_waits: how long asking for a size takes.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self.waits, self.size_waits = ReadLatency(), ReadLatency()

    def find_sizes(
        self, file: IntArray, places: IntArray, length: IntArray, failures: list[tuple[int, BaseException]]
    ) -> None:
        """Ask for the sizes of some items.

        Args:
            file: int64 (n,), number of each item's file.
            places: int64 (m,), which items.
            length: int64 (n,), where sizes are written to.
            failures: (place, error) of items that cannot be read is added here.
        """
        begin = perf_counter()
        for place, number in zip(places.tolist(), file[places].tolist(), strict=True):
            try:
                length[place] = sample_status(self._paths[number]).st_size
            except OSError as error:
                failures.append((place, error))
        self.size_waits.read(perf_counter() - begin, len(places), 0)

    def read(self, reads: IntArray, out: memoryview) -> Iterator[tuple[Read, int | OSError]]:
        """Read files.

        Args:
            reads: int64 (n, 4), see `aioloader.storage.layout.Read`; a file that has grown is read as far as planned.
            out: memory.

        Yields:
            each read, and how many bytes came, or why none did.
        """
        for low in range(0, len(reads), _OPEN_AHEAD):
            yield from self._read(list(map(tuple, reads[low : low + _OPEN_AHEAD].tolist())), out)

    def _read(self, reads: list[Read], out: memoryview) -> Iterator[tuple[Read, int | OSError]]:
        begin = perf_counter()
        ahead: dict[int, int] = {}
        try:
            if self.waits.slow:
                self._announce(reads, ahead)
            for read in reads:
                number, _, nbytes, place = read
                try:
                    fd = ahead.pop(place) if place in ahead else open_regular(self._paths[number])
                    try:
                        held = read_into(fd, out[place : place + nbytes], 0)
                    finally:
                        os.close(fd)
                except OSError as error:
                    yield read, error
                else:
                    yield read, held
        finally:
            for fd in ahead.values():
                os.close(fd)
        self.waits.read(perf_counter() - begin, len(reads), sum(nbytes for _, _, nbytes, _ in reads))

    def _announce(self, reads: list[Read], opened: dict[int, int]) -> None:
        for number, _, nbytes, place in reads:
            try:
                opened[place] = open_regular(self._paths[number])
            except OSError:
                continue  # told by who reads it
            announce(opened[place], 0, nbytes)


def sample_status(path: str) -> os.stat_result:
    """What the system knows of a file that is one sample.

    Raises:
        OSError: it cannot be asked, is no regular file, or is too large.
    """
    status = os.stat(path)
    check_regular(status, path)
    if status.st_size > _MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"{status.st_size} bytes are too many for one sample", path)
    return status
