"""Spans of files to few reads: which to merge, and where each item then lies in memory. Pure.

Spans of one file that touch, overlap, repeat, or leave a gap of at most `max_gap_bytes` become one read,
because reading a small gap costs less than another system call. To find them, all files are put on one line,
one after the other and further apart than any gap that is swallowed; a read then ends where a span begins
beyond everything before it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

if TYPE_CHECKING:
    from aioloader.foundation.types import IntArray

__all__ = ("ALIGNMENT", "Read", "lay_out", "lay_out_apart")

ALIGNMENT = 64
"""Reads begin at multiples of this many bytes of memory."""

Read: TypeAlias = tuple[int, int, int, int]
"""(file, offset in it, bytes, place in memory)."""


def lay_out_apart(file: IntArray, offset: IntArray, length: IntArray) -> tuple[int, IntArray, IntArray]:
    """The same with a read for every item, in their order: for what is in memory, where merging gains nothing."""
    rooms = -(-np.maximum(length, 1) // ALIGNMENT) * ALIGNMENT
    end = np.cumsum(rooms)
    start = end - rooms
    return int(end[-1]) if len(end) else 0, start, np.stack((file, offset, length, start), axis=1)


def lay_out(
    file: IntArray, offset: IntArray, length: IntArray, *, max_gap_bytes: int
) -> tuple[int, IntArray, IntArray]:
    """Plan the reads of a batch.

    Args:
        file: int64 (n,), number of each item's file.
        offset: int64 (n,), where it begins, at least 0.
        length: int64 (n,), its bytes, at least 0.
        max_gap_bytes: longest stretch of unwanted bytes that is read along.

    Returns:
        bytes of memory needed, place of every item in it (int64 (n,)), and the reads, int64 (m, 4), the columns as
        in `Read`, files in ascending order. No two reads begin at one place, empty ones neither.
    """
    n = len(offset)
    if n == 0:
        return 0, np.empty(0, np.int64), np.empty((0, 4), np.int64)
    order = np.lexsort((offset, file))
    begin, files = offset[order], file[order]
    end = begin + length[order]
    line_begin, line_end = begin, end
    segments = np.flatnonzero(np.concatenate(([True], files[1:] != files[:-1])))
    if len(segments) > 1:
        lowest = begin[segments]
        extent = np.maximum.reduceat(end, segments) - lowest
        shift = np.cumsum(extent + (max_gap_bytes + 1)) - (extent + (max_gap_bytes + 1)) - lowest
        shift = np.repeat(shift, np.diff(segments, append=n))
        line_begin, line_end = begin + shift, end + shift
    reached = np.maximum.accumulate(line_end)
    opens = np.concatenate(([True], line_begin[1:] - reached[:-1] > max_gap_bytes))
    firsts = np.flatnonzero(opens)
    nbytes = np.maximum.reduceat(line_end, firsts) - line_begin[firsts]
    rooms = -(-np.maximum(nbytes, 1) // ALIGNMENT) * ALIGNMENT
    places = np.cumsum(rooms) - rooms
    start = np.empty(n, np.int64)
    start[order] = line_begin + np.repeat(places - line_begin[firsts], np.diff(firsts, append=n))
    return int(rooms.sum()), start, np.stack((files[firsts], begin[firsts], nbytes, places), axis=1)
