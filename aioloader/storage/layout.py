"""Layout of a batch: which spans are merged into one read, and the place of each item in memory. Pure.

Spans of one file that touch, overlap, repeat, or leave a gap of at most `max_gap_bytes` become one read, because
reading a small gap costs less than another system call. To find them, all files are placed on one line, one after the
other, separated by more than the largest gap; a read then ends where a span begins beyond the end of all spans before
it.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from aioloader.foundation.types import IntArray, ReadPlan, Spans

if TYPE_CHECKING:
    from collections.abc import Sequence

ALIGNMENT = 64
"""Reads begin at multiples of this many bytes of memory."""

Read: TypeAlias = tuple[int, int, int, int]
"""(file, offset in it, bytes, place in memory)."""


def lay_out_apart(file: IntArray, offset: IntArray, length: IntArray) -> tuple[int, IntArray, IntArray]:
    """Lay out a batch with one read for each item, in their order: for bytes in memory, where merging gains nothing.

    Arguments and results are those of `lay_out`.
    """
    rooms = -(-np.maximum(length, 1) // ALIGNMENT) * ALIGNMENT
    end = np.cumsum(rooms)
    start = end - rooms
    return int(end[-1]) if len(end) else 0, start, np.stack((file, offset, length, start), axis=1)


def plan_apart(
    spans: Spans, length: IntArray, failures: Sequence[tuple[int, BaseException]] = ()
) -> ReadPlan:
    """Plan one read for each item, in their order; two for an item with a gap.

    Args:
        spans: of the items.
        length: int64 (n,), bytes of each, with its gap; becomes 0 for those that failed.
        failures: (place in the batch, error).
    """
    failed = [place for place, _ in failures]
    if failed:
        length[failed] = 0
    if spans.gaps is not None:
        return _plan_with_gaps(spans, length, spans.gaps, failures)
    nbytes, start, reads = lay_out_apart(spans.file, spans.offset, length)
    if failed:
        start[failed] = -1
    return ReadPlan(nbytes, start, length, reads, list(failures))


def _plan_with_gaps(
    spans: Spans, length: IntArray, gaps: IntArray, failures: Sequence[tuple[int, BaseException]]
) -> ReadPlan:
    """Plan the reads before and behind the gap of each item. In memory the item has no gap."""
    failed = length == 0
    before = np.where(failed, 0, gaps[:, 0])
    left_out = np.where(failed, 0, gaps[:, 1])
    partial = before > 0
    kept = length - left_out
    nbytes, start, reads = lay_out_apart(spans.file, spans.offset, kept)
    several = partial & (left_out > 0)
    reads[several, 2] = before[several]
    behind = np.stack((spans.file, spans.offset + before + left_out, kept - before, start + before), axis=1)
    start[[place for place, _ in failures]] = -1
    reads = np.concatenate((reads, behind[several]))
    return ReadPlan(nbytes, start, kept, reads, list(failures), partial=partial)


def lay_out(
    file: IntArray, offset: IntArray, length: IntArray, *, max_gap_bytes: int
) -> tuple[int, IntArray, IntArray]:
    """Plan the reads of a batch.

    Args:
        file: int64 (n,), number of each item's file.
        offset: int64 (n,), where it begins, at least 0.
        length: int64 (n,), its bytes, at least 0.
        max_gap_bytes: longest range between two items that is read along.

    Returns:
        bytes of memory needed, place of every item in it (int64 (n,)), and the reads, int64 (m, 4), the columns as
        in `Read`, files in ascending order. No two reads begin at one place, not even empty ones.
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
