"""Record files mapped into worker processes: what lies in the page cache need not be copied.

Rule (docs/design.md, "The path of a sample"): only while all of a file is in the page cache, so that no worker waits
for a disk. The core keeps the descriptors, and workers inherit them; they map a file when they first need it. A record
is looked up by its offset. As with spans that are read, an index may give too few bytes: the record's own head says how
many it has.

Reading a map behind the end of its file kills the process (SIGBUS), so the file's size is asked for each time.
"""

from __future__ import annotations

import mmap
import os
from typing import TYPE_CHECKING, Any

from aioloader.foundation.descriptors import above_streams
from aioloader.storage.local.descriptors import open_regular
from aioloader.storage.records import cut_short, record_extent
from recordio._framing import HEAD_SIZE, MAGIC, MAX_PAYLOAD, WHOLE, framed_length, unpack_head

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import IntArray

__all__ = ("FileMaps",)


class FileMaps:
    """Record files that are read through maps. A pickled copy serves a process that has inherited the descriptors.

    Args:
        paths: the files, for errors.
        fds: their descriptors.
        sizes: bytes of each that are mapped.
    """

    def __init__(self, paths: Sequence[str], fds: Sequence[int], sizes: Sequence[int]) -> None:
        self.paths = tuple(paths)
        self.fds = tuple(fds)
        self.sizes = tuple(sizes)
        self._maps: dict[int, mmap.mmap] = {}
        self._views: dict[int, memoryview] = {}

    def __reduce__(self) -> tuple[Any, ...]:
        return FileMaps, (self.paths, self.fds, self.sizes)

    @classmethod
    def open(cls, paths: Sequence[str]) -> FileMaps:
        """Open files to be mapped by other processes.

        Raises:
            OSError: one cannot be opened or mapped; an empty one cannot.
        """
        fds: list[int] = []
        sizes: list[int] = []
        try:
            for path in paths:
                fds.append(above_streams(open_regular(path)))
                sizes.append(os.fstat(fds[-1]).st_size)
                try:
                    mmap.mmap(fds[-1], sizes[-1], prot=mmap.PROT_READ).close()
                except ValueError as error:
                    raise OSError(f"{path}: {error}") from error
        except BaseException:
            for fd in fds:
                os.close(fd)
            raise
        return cls(paths, fds, sizes)

    def close(self) -> None:
        """Close the descriptors; maps stay as long as somebody looks at them."""
        fds, self.fds = self.fds, ()
        for fd in fds:
            os.close(fd)

    def _map(self, file: int) -> mmap.mmap:
        mapped = self._maps.get(file)
        if mapped is None:
            mapped = mmap.mmap(self.fds[file], self.sizes[file], prot=mmap.PROT_READ)
            self._maps[file] = mapped
            self._views[file] = memoryview(mapped)
        return mapped

    def record(self, file: int, offset: int, length: int) -> memoryview:
        """The framed bytes of a record, read-only.

        Args:
            file: number of the file.
            offset: where the record begins.
            length: bytes that the index gives it.

        Raises:
            OSError: the file cannot be read.
            TruncatedRecordError: the file ends inside the record.
            CorruptRecordError: the record has another length, and is damaged.
        """
        self._map(file)
        held = os.fstat(self.fds[file]).st_size
        if offset + length > held:
            raise cut_short(self.paths[file], offset, length, held - offset)
        view = self._views[file]
        if length >= HEAD_SIZE:
            magic, word = unpack_head(view, offset)
            if magic == MAGIC and (word >> 29 != WHOLE or framed_length(word & MAX_PAYLOAD) != length):
                length = max(length, self._extent(file, offset, length))
        return view[offset : offset + length]

    def _extent(self, file: int, offset: int, length: int) -> int:
        extent = record_extent(self.fds[file], self.paths[file], offset, length)
        if offset + extent > self.sizes[file]:
            raise cut_short(self.paths[file], offset, extent, self.sizes[file] - offset)
        return extent

    def whole(self, file: int, end: IntArray) -> mmap.mmap | None:
        """All of a file, or None if it no longer reaches as far as `end`, int64 (n,)."""
        mapped = self._map(file)
        return mapped if int(end.max(initial=0)) <= os.fstat(self.fds[file]).st_size else None
