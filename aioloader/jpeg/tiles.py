"""Leave out the restart intervals that a crop does not touch.

Rule: every restart interval can be decoded alone, because the decoder forgets everything at a restart marker. Where
the interval divides a row of MCUs, intervals are tiles, and any rectangle of them is a picture of its own: its bytes
are put behind the headers row of tiles by row, the size in the frame header becomes the rectangle's, and the restart
markers between them are numbered anew from 0. Where it does not divide a row, whole rows of MCUs are left out above and
below: those that begin with an interval can be the first.

What is noticed and what not: as for the early stop (`aioloader.jpeg.early_stop`); a damaged interval harms its own tile
only, and each restart marker that is touched is checked.
"""

from __future__ import annotations

from math import gcd
from struct import unpack_from
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.jpeg.markers import EOI, RST0
from aioloader.jpeg.scan import find_intervals
from aioloader.jpeg.table import claimed_table

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import IntArray
    from aioloader.jpeg.frame import Frame

__all__ = ("Cover", "cover", "gather")

_RESTARTS = bytes(range(RST0, RST0 + 8))
# Fewer intervals are renumbered by a loop: array code has to come back into the processor's caches for every picture.
_MANY = 96


class Cover(NamedTuple):
    """The restart intervals that cover a rectangle: in each of `rows` runs, `across` neighbours.

    Attributes:
        first: number of the first interval.
        rows: runs of intervals; 1 if all follow each other in the file.
        across: intervals in a run.
        stride: from the first interval of a run to that of the next.
        left, top: MCUs before the first column and above the first row.
        columns: MCUs in a row.
        mcus: MCUs covered in all.
        more: whether the last interval goes on below the rectangle.
    """

    first: int
    rows: int
    across: int
    stride: int
    left: int
    top: int
    columns: int
    mcus: int
    more: bool


def cover(frame: Frame, left: int, top: int, right: int, bottom: int, *, vertical_only: bool) -> Cover:
    """Cover a rectangle of MCUs by restart intervals.

    Args:
        frame: the frame, with restart intervals.
        left, top, right, bottom: the rectangle in MCUs, right and bottom exclusive; not empty.
        vertical_only: take whole rows.
    """
    interval, per_row = frame.restart_interval, frame.mcus_per_row
    if per_row % interval == 0 and not vertical_only:
        stride = per_row // interval
        first, last = left // interval, -(-right // interval)
        across = last - first
        if across < stride:
            columns = across * interval
            rows = bottom - top
            start = top * stride + first
            return Cover(start, rows, across, stride, first * interval, top, columns, rows * columns, False)
    # Rows that begin with an interval come in equal distances.
    top -= top % (interval // gcd(interval, per_row))
    first = top * per_row // interval
    last = -(-bottom * per_row // interval)
    more = bottom < frame.mcu_rows and last * interval > bottom * per_row
    mcus = (bottom - top) * per_row
    return Cover(first, 1, last - first, last - first, 0, top, per_row, mcus, more)


def gather(data: Any, frame: Frame, cover: Cover, width: int, height: int) -> bytearray | None:
    """Make a JPEG of some intervals.

    Args:
        data: the file; bytes, or a memoryview of bytes.
        frame: its frame.
        cover: the intervals.
        width, height: of the picture that they are, in pixels; as many MCUs as covered.

    Returns:
        The JPEG, or None if the restart markers are not those that the frame announces.
    """
    first, rows, across, stride = cover[:4]
    runs = range(first, first + rows * stride, stride)
    table = claimed_table(data, frame) if frame.tables else None
    if table is not None:
        entries, start, end = table
        claimed: Any
        if rows * across >= _MANY:
            shape, strides = (rows, across + 1), (4 * stride, 4)
            claimed = np.ndarray(shape, "<u4", entries, start + 4 * first, strides).astype(np.int64)
        else:
            code = f"<{across + 1}I"
            claimed = [unpack_from(code, entries, start + 4 * run) for run in runs]
        copy = _gather(data, frame, runs, claimed, frame.scan_start, end, width, height)
        if copy is not None:
            return copy
    bounds = find_intervals(data, frame)
    if bounds is None:
        return None
    found = [bounds[run : run + across + 1] for run in runs]
    return _gather(data, frame, runs, found, 0, bounds[-1], width, height)


def _gather(
    data: Any,
    frame: Frame,
    runs: range,
    bounds: Sequence[Sequence[int]] | IntArray,
    origin: int,
    end: int,
    width: int,
    height: int,
) -> bytearray | None:
    """As `gather`, with given bounds; None if there are no restart markers where they should be.

    Args:
        data, frame, width, height: as for `gather`.
        runs: number of the first interval of each run.
        bounds: for each run, where its intervals begin, and the one after the last; in bytes from `origin`. An array
            of them where there are many.
        origin: offset in the file.
        end: where the image ends in the file.
    """
    pieces = [data[start:stop] for start, stop in frame.needed]
    place = sum(map(len, pieces)) - 1
    edges: Any
    if isinstance(bounds, np.ndarray):
        edges = zip(bounds[:, 0].tolist(), bounds[:, -1].tolist(), strict=True)
    else:
        edges = [(ends[0], ends[-1]) for ends in bounds]
    for run, (start, stop) in zip(runs, edges, strict=True):
        start += origin
        stop += origin
        if not start < stop <= end:
            return None
        if run:
            if data[start - 1] != RST0 + (run - 1) % 8 or data[start - 2] != 0xFF:
                return None
        elif start != frame.scan_start:
            return None
        pieces.append(data[start:stop])
    copy = bytearray().join(pieces)
    size_at = _size_at(frame)
    copy[size_at : size_at + 4] = bytes((height >> 8, height & 255, width >> 8, width & 255))
    across = len(bounds[0]) - 1
    if runs[-1] + across == frame.intervals:
        if stop != end:
            return None
        copy[-1] = RST0 + (frame.intervals - 1) % 8  # it is EOI; all are numbered below
    # Each interval has brought the marker behind it: number these from 0, and end with EOI.
    many = isinstance(bounds, np.ndarray)
    if not (_renumber_many(copy, place, runs, bounds) if many else _renumber(copy, place, runs, bounds)):
        return None
    copy[-1] = EOI
    return copy


def _renumber(copy: bytearray, place: int, runs: range, bounds: Any) -> bool:
    """Number restart markers from 0, in a loop; False where there are none.

    Args:
        copy: the JPEG.
        place: where its headers end: their last byte.
        runs, bounds: as for `_gather`.
    """
    across = len(bounds[0]) - 1
    numbers = _RESTARTS * (across // 8 + 2)
    limit = len(copy)
    new = 0
    for run, ends in zip(runs, bounds, strict=True):
        shift = place - ends[0]
        for bound, was, becomes in zip(ends[1:], numbers[run % 8 :], numbers[new % 8 :], strict=False):
            mark = bound + shift
            if not place + 2 < mark < limit or copy[mark] != was or copy[mark - 1] != 0xFF:
                return False
            copy[mark] = becomes
            place = mark
        new += across
    return True


def _renumber_many(copy: bytearray, place: int, runs: range, bounds: Any) -> bool:
    """The same for an array of bounds."""
    begins, ends = bounds[:, :-1], bounds[:, 1:]
    if (ends - begins < 3).any():
        return False
    last = ends[:, -1]
    stops = place + np.cumsum(last - bounds[:, 0])
    marks = (ends + (stops - last)[:, None]).ravel()
    numbers = np.arange(runs.start, runs.stop, runs.step)[:, None] + np.arange(ends.shape[1])
    data = np.frombuffer(copy, np.uint8)
    if (data[marks] != RST0 + (numbers.ravel() & 7)).any() or (data[marks - 1] != 0xFF).any():
        return False
    data[marks] = RST0 + (np.arange(len(marks)) & 7)
    return True


def _size_at(frame: Frame) -> int:
    """Where the height stands in the headers that are kept."""
    shift = 0
    for start, stop in frame.needed:
        if start <= frame.size_at < stop:
            return frame.size_at - start + shift
        shift += stop - start
    raise AssertionError("the frame header is always kept")
