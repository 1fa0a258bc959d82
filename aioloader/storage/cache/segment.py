"""Segment of a cache: a file of bytes, its journal, and their writer. Only one process writes to a segment.

Bytes are appended first and their lines after them. The journal is locked as long as a process writes to the segment,
so that a segment without a writer is recognized, truncated to its last valid line, and continued.

A line of the journal is the place of one span in the file of bytes. It has a fixed size and ends with a check of
itself. A line that was cut short, never written (zeros), or damaged is therefore recognized, and costs only its own
span. A line is written after the bytes that it describes, so the journal of a writer that was killed describes nothing
that was not written; the bytes have a checksum all the same, because a machine that loses power may keep the line and
lose the bytes.

| field | type | meaning |
| --- | --- | --- |
| offset, length | i8 | the span in the object |
| place | i8 | offset of its bytes in the data file |
| crc | u4 | CRC-32 of the bytes |
| check | u4 | of the fields before; odd, so that zeros are never a valid line |
"""

from __future__ import annotations

import fcntl
import os
import time
import zlib
from typing import TYPE_CHECKING

import numpy as np

from aioloader.storage.cache.disk_quota import DATA, LINES, delete_segment, lock_within

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array, IntArray


_MOST_BUFFERS = 512  # in one call; Linux takes 1,024
LINE = np.dtype(
    [("offset", "<i8"), ("length", "<i8"), ("place", "<i8"), ("crc", "<u4"), ("check", "<u4")], align=False
)
LINE_NBYTES = LINE.itemsize

# Odd constants of 64 bits: the fractional parts of the square roots of 2, 3, 5 and 7.
_FACTORS = np.array(
    [0x6A09E667F3BCC909, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1], np.uint64
)
_LENGTH_TURN = np.uint64(29)


def _check(lines: Array) -> Array:
    """Compute the checks, uint32 (n,), odd."""
    mixed = lines["offset"].astype(np.uint64) * _FACTORS[0]
    for name, factor in zip(("length", "place", "crc"), _FACTORS[1:], strict=True):
        mixed ^= mixed >> _LENGTH_TURN
        mixed = (mixed + lines[name].astype(np.uint64)) * factor
    mixed ^= mixed >> np.uint64(32)
    check: Array = mixed.astype(np.uint32) | np.uint32(1)
    return check


def format_lines(offset: IntArray, length: IntArray, place: IntArray, crc: Array) -> bytes:
    """Return the lines of some spans, one after the other.

    Args:
        offset, length, place: int64 (n,), see above.
        crc: uint32 (n,).
    """
    lines = np.empty(len(offset), LINE)
    lines["offset"], lines["length"], lines["place"], lines["crc"] = offset, length, place, crc
    lines["check"] = _check(lines)
    return lines.tobytes()


def parse_lines(data: bytes, data_nbytes: int) -> tuple[Array, Array]:
    """Return the valid lines of a part of a journal.

    Args:
        data: the part, from the beginning of a line; an incomplete line at its end is ignored.
        data_nbytes: bytes of the data file; a line with a place beyond is not valid.

    Returns:
        the lines (dtype `LINE`), and the number of each within the part, int64.
    """
    lines = np.frombuffer(data, LINE, len(data) // LINE_NBYTES)
    valid = lines["check"] == _check(lines)
    valid &= (lines["length"] > 0) & (lines["place"] >= 0)
    # Compared so that no sum can overflow.
    valid &= lines["place"] <= data_nbytes - np.minimum(lines["length"], data_nbytes)
    valid &= lines["length"] <= data_nbytes
    numbers = np.flatnonzero(valid)
    return lines[numbers], numbers


class SegmentWriter:
    """Writer that appends to a segment. Not safe against other threads.

    Args:
        stem: path without suffix.
        new: make the segment; False: continue an existing one.

    Attributes:
        stem: as above.
        lines: lines of the journal.
        nbytes: bytes of the data.

    Raises:
        OSError: a file cannot be made, opened or locked; BlockingIOError if another process writes to the segment.
    """

    def __init__(self, stem: str, *, new: bool) -> None:
        self.stem = stem
        flags = os.O_RDWR | (os.O_CREAT | os.O_EXCL if new else 0)
        self._lines = os.open(stem + LINES, flags, 0o666)
        self._data = -1
        self.nbytes = -1  # not known before the files are open
        try:
            if not lock_within(self._lines, fcntl.LOCK_EX, 0):
                raise BlockingIOError(f"{stem} is being written to")
            self._data = os.open(stem + DATA, flags, 0o666)
            self.lines, self.nbytes = self._truncate()
        except BaseException:
            self.close()
            raise

    @classmethod
    def make(cls, folder: str) -> SegmentWriter:
        """Make a segment in a folder. Names sort by age."""
        while True:
            name = f"{time.time_ns():016x}-{os.getpid()}"
            try:
                return cls(os.path.join(folder, name), new=True)
            except FileExistsError:
                continue

    def _truncate(self) -> tuple[int, int]:
        size = os.fstat(self._lines).st_size
        valid, numbers = parse_lines(os.pread(self._lines, size, 0), os.fstat(self._data).st_size)
        lines = size // LINE_NBYTES
        nbytes = int((valid["place"] + valid["length"]).max()) if len(valid) else 0
        os.ftruncate(self._lines, lines * LINE_NBYTES)
        # A line with a place beyond the end would become valid when the file has grown.
        for line in np.setdiff1d(np.arange(lines), numbers).tolist():
            os.pwrite(self._lines, bytes(LINE_NBYTES), line * LINE_NBYTES)
        os.ftruncate(self._data, nbytes)
        return lines, nbytes

    @property
    def deleted(self) -> bool:
        """Return whether another process has deleted the files."""
        return os.fstat(self._data).st_nlink == 0

    def append(self, offset: IntArray, pieces: Sequence[memoryview]) -> tuple[Array, IntArray]:
        """Append spans and their lines.

        Args:
            offset: int64 (n,), of the spans in the object.
            pieces: their bytes.

        Returns:
            the lines (dtype `LINE`), and the number of each in the journal, int64.

        Raises:
            OSError: nothing was written, for example because the disk is full.
        """
        length = np.array([len(piece) for piece in pieces], np.int64)
        place = self.nbytes + np.cumsum(length) - length
        crc = np.array([zlib.crc32(piece) for piece in pieces], np.uint32)
        text = format_lines(offset, length, place, crc)
        first = self.lines
        try:
            _write_all(self._data, pieces, self.nbytes)
            _write_all(self._lines, [memoryview(text)], first * LINE_NBYTES)
        except OSError:
            # So that every line has its bytes; without that, a reader would notice by the checksum.
            os.ftruncate(self._lines, first * LINE_NBYTES)
            os.ftruncate(self._data, self.nbytes)
            raise
        self.lines += len(pieces)
        self.nbytes += int(length.sum())
        return np.frombuffer(text, LINE), np.arange(first, self.lines)

    def close(self) -> None:
        """Close the files; delete them if nothing was written. May be called twice."""
        if self._data >= 0 and self.nbytes == 0:
            delete_segment(self.stem)
        for fd in (self._lines, self._data):
            if fd >= 0:
                os.close(fd)
        self._lines = self._data = -1


def _write_all(fd: int, pieces: Sequence[memoryview], offset: int) -> None:
    left = list(pieces)
    while left:
        written = os.pwritev(fd, left[:_MOST_BUFFERS], offset)
        offset += written
        done = 0
        while done < len(left) and written >= len(left[done]):
            written -= len(left[done])
            done += 1
        del left[:done]
        if written:
            left[0] = left[0][written:]
