"""Reader of files that are one sample each: it gets their sizes, opens, reads and closes them.

On a slow file system each of these steps waits. So the source splits a batch into parts that run concurrently, and
several files are opened and read ahead before the first of them is read.
"""

from __future__ import annotations

import errno
import os
from time import perf_counter
from typing import TYPE_CHECKING

from aioloader.storage.local.descriptors import check_regular, open_regular_file, read_into
from aioloader.storage.local.page_cache import ReadLatency, read_ahead

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from io import FileIO

    from aioloader.foundation.types import IntArray
    from aioloader.storage.layout import Read


_MAX_FILE_BYTES = 1 << 30
_OPEN_AHEAD = 8


class WholeFiles:
    """Blocking reader of whole files; used from several threads at once.

    Args:
        paths: the files.

    Attributes:
        latency: of reads.
        size_latency: of queries for a size.
    """

    def __init__(self, paths: Sequence[str]) -> None:
        self._paths = paths
        self.latency, self.size_latency = ReadLatency(), ReadLatency()

    def find_sizes(
        self, file: IntArray, places: IntArray, length: IntArray, failures: list[tuple[int, BaseException]]
    ) -> None:
        """Query the sizes of some items.

        Args:
            file: int64 (n,), number of each item's file.
            places: int64 (m,), numbers of the items to query.
            length: int64 (n,), receives the sizes.
            failures: receives (place, error) of items that cannot be read.
        """
        begin = perf_counter()
        for place, number in zip(places.tolist(), file[places].tolist(), strict=True):
            try:
                length[place] = sample_status(self._paths[number]).st_size
            except OSError as error:
                failures.append((place, error))
        self.size_latency.add(perf_counter() - begin, len(places), 0)

    def read(self, reads: IntArray, out: memoryview) -> Iterator[tuple[Read, int | OSError]]:
        """Read files.

        Args:
            reads: int64 (n, 4), see `aioloader.storage.layout.Read`; of a file that has grown, the planned bytes are
                read.
            out: memory.

        Yields:
            each read, and the number of its bytes or its error.
        """
        for low in range(0, len(reads), _OPEN_AHEAD):
            yield from self._read(list(map(tuple, reads[low : low + _OPEN_AHEAD].tolist())), out)

    def _read(self, reads: list[Read], out: memoryview) -> Iterator[tuple[Read, int | OSError]]:
        begin = perf_counter()
        ahead: dict[int, FileIO] = {}
        try:
            if self.latency.slow:
                self._open_ahead(reads, ahead)
            for read in reads:
                number, _, nbytes, place = read
                try:
                    with (
                        ahead.pop(place) if place in ahead else open_regular_file(self._paths[number]) as file
                    ):
                        held = read_into(file.fileno(), out[place : place + nbytes], 0)
                except OSError as error:
                    yield read, error
                else:
                    yield read, held
        finally:
            for file in ahead.values():
                file.close()
        self.latency.add(perf_counter() - begin, len(reads), sum(nbytes for _, _, nbytes, _ in reads))

    def _open_ahead(self, reads: list[Read], opened: dict[int, FileIO]) -> None:
        for number, _, nbytes, place in reads:
            try:
                opened[place] = open_regular_file(self._paths[number])
            except OSError:
                continue  # the read reports it
            read_ahead(opened[place].fileno(), 0, nbytes)


def sample_status(path: str) -> os.stat_result:
    """Return the status of a file that is one sample.

    Raises:
        OSError: the file cannot be queried, is not a regular file, or is too large.
    """
    status = os.stat(path)
    check_regular(status, path)
    if status.st_size > _MAX_FILE_BYTES:
        raise OSError(errno.EFBIG, f"{status.st_size} bytes are too many for one sample", path)
    return status
