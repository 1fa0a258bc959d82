"""File objects for pyarrow that have only some ranges of a file."""

from __future__ import annotations

import bisect
import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

# Fewer, larger reads for code that reads in small steps.
_READ_NBYTES = 8 << 20


class RangeFile(io.RawIOBase):
    """Seekable file of which some ranges are known. Used by one thread at a time.

    Args:
        name: of the file, for errors.
        nbytes: size of the file.
        ranges: (offset, bytes) of each range; they do not overlap.
        fetch: reads bytes that are in no range, from (offset, length); None: reading them is an error.

    Attributes:
        name: as given.
        complete: all bytes that are needed are in memory.
    """

    def __init__(
        self,
        name: str,
        nbytes: int,
        ranges: Sequence[tuple[int, memoryview]],
        fetch: Callable[[int, int], memoryview] | None = None,
    ) -> None:
        super().__init__()
        self.name = name
        self._nbytes = nbytes
        self._ranges = sorted(ranges, key=lambda each: each[0])
        self._offsets = [offset for offset, _ in self._ranges]
        self._fetch = fetch
        self.complete = fetch is None
        self._fetched: tuple[int, memoryview] = (0, memoryview(b""))
        self._at = 0

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def tell(self) -> int:
        return self._at

    def seek(self, offset: int, whence: int = io.SEEK_SET, /) -> int:
        base = (0, self._at, self._nbytes)[whence]
        self._at = max(0, base + offset)
        return self._at

    def size(self) -> int:
        """Return the size of the file."""
        return self._nbytes

    def read(self, size: int | None = -1, /) -> bytes:
        """Return bytes from here on: fewer than `size` only at the end of the file.

        Raises:
            OSError: they are in no range that is known.
        """
        return bytes(self.read_buffer(size))

    def read_buffer(self, size: int | None = -1, /) -> memoryview:
        """Return the same as `read`, without a copy where that is possible; pyarrow calls it."""
        left = max(0, self._nbytes - self._at)
        length = left if size is None or size < 0 else min(size, left)
        found = self._known(self._at, length) if length else memoryview(b"")
        self._at += len(found)
        return found

    def _known(self, offset: int, length: int) -> memoryview:
        place = bisect.bisect_right(self._offsets, offset) - 1
        if place >= 0:
            begin, data = self._ranges[place]
            inside = data[offset - begin : offset - begin + length]
            if len(inside) == length:
                return inside
        if self._fetch is None:
            raise OSError(
                f"{self.name}: bytes {offset} to {offset + length - 1} are needed, which are outside of the column "
                "chunks that the footer names"
            )
        begin, data = self._fetched
        if not begin <= offset <= offset + length <= begin + len(data):
            ahead = min(max(length, _READ_NBYTES), self._nbytes - offset)
            self._fetched = begin, data = offset, self._fetch(offset, ahead)
        return data[offset - begin : offset - begin + length]
