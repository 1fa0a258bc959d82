"""JPEGs without the restart intervals that a crop does not touch.

Rule: every restart interval can be decoded alone, because the decoder resets its state at a restart marker. Where the
interval divides a row of MCUs, intervals are tiles, and any rectangle of them is a separate image: its bytes are put
behind the headers row of tiles by row, the size in the frame header becomes the rectangle's, and the restart markers
between them are numbered again from 0. Where it does not divide a row, whole rows of MCUs are left out above and below:
only rows that begin with an interval can be the first.

Damage is detected as for the early stop (`aioloader.jpeg.cut`); a damaged interval affects its own tile only, and each
restart marker that is touched is checked.
"""

from __future__ import annotations

from itertools import pairwise
from math import gcd
from struct import unpack_from
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.jpeg.frame import EOI, RST0, Frame
from aioloader.jpeg.table import claimed_table, find_intervals

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import IntArray

_RESTARTS = bytes(range(RST0, RST0 + 8))
# Fewer intervals are renumbered by a loop: array code has to be loaded into the processor's caches for every image.
_MANY = 96


class Cover(NamedTuple):
    """The restart intervals that cover a rectangle: runs of neighbours, with the same number in each.

    Attributes:
        runs: number of the first interval of each run; a single run if all are consecutive in the file.
        across: intervals in a run.
        left, top: MCUs before the first column and above the first row.
        columns: MCUs in a row.
        more: the last interval continues below the rectangle.
    """

    runs: range
    across: int
    left: int
    top: int
    columns: int
    more: bool


def cover(frame: Frame, left: int, top: int, right: int, bottom: int, *, vertical_only: bool) -> Cover:
    """Cover a rectangle of MCUs by restart intervals.

    Args:
        frame: the frame, with restart intervals.
        left, top, right, bottom: the rectangle in MCUs, right and bottom exclusive; not empty.
        vertical_only: take whole rows.
    """
    interval, per_row = frame.restart_interval, frame.mcus_per_row
    stride, rest = divmod(per_row, interval)
    first, last = left // interval, -(-right // interval)
    across = last - first
    if not rest and not vertical_only and across < stride:
        runs = range(top * stride + first, bottom * stride, stride)
        columns = across * interval
        return Cover(runs=runs, across=across, left=first * interval, top=top, columns=columns, more=False)
    # Rows that begin with an interval are equally spaced.
    top -= top % (interval // gcd(interval, per_row))
    first, last = top * per_row // interval, -(-bottom * per_row // interval)
    more = bottom < frame.mcu_rows and last * interval > bottom * per_row
    runs = range(first, first + 1)
    return Cover(runs=runs, across=last - first, left=0, top=top, columns=per_row, more=more)


def gather(data: Any, frame: Frame, cover: Cover, width: int, height: int) -> bytearray | None:
    """Build a JPEG of some intervals.

    Args:
        data: the file; bytes, or a memoryview of bytes.
        frame: its frame.
        cover: the intervals.
        width, height: extents in pixels of the image that they form; as many MCUs as covered.

    Returns:
        The JPEG, or None if the restart markers are not those that the frame announces.
    """
    runs, across = cover.runs, cover.across
    table = claimed_table(data, frame) if frame.tables else None
    if table is not None:
        entries, start, end = table
        claimed: Any
        if len(runs) * across >= _MANY:
            shape, strides = (len(runs), across + 1), (4 * runs.step, 4)
            claimed = np.ndarray(shape, "<u4", entries, start + 4 * runs.start, strides).astype(np.int64)
        else:
            code = f"<{across + 1}I"
            claimed = [unpack_from(code, entries, start + 4 * run) for run in runs]
        copy = _gather(data, frame, runs, claimed, origin=frame.scan_start, end=end)
    else:
        copy = None
    if copy is None:
        bounds = find_intervals(data, frame)
        if bounds is None:
            return None
        found = [bounds[run : run + across + 1] for run in runs]
        copy = _gather(data, frame, runs, found, origin=0, end=bounds[-1])
    if copy is not None:
        # The frame header is always among the headers that are kept.
        size_at = frame.size_at
        size_at -= sum(start - stop for (_, stop), (start, _) in pairwise(frame.needed) if start <= size_at)
        copy[size_at : size_at + 4] = bytes((height >> 8, height & 255, width >> 8, width & 255))
    return copy


def _gather(
    data: Any,
    frame: Frame,
    runs: range,
    bounds: Sequence[Sequence[int]] | IntArray,
    *,
    origin: int,
    end: int,
) -> bytearray | None:
    """Join the headers and the runs of intervals at given bounds.

    Args:
        data, frame: as for `gather`.
        runs: number of the first interval of each run.
        bounds: for each run, the starts of its intervals, and of the one after the last; in bytes from `origin`. An
            array if there are many.
        origin: offset in the file.
        end: offset of the image's end in the file.

    Returns:
        The JPEG, with the size of the whole image; None if a restart marker is missing where one should be.
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
    across = len(bounds[0]) - 1
    if runs[-1] + across == frame.intervals:
        if stop != end:
            return None
        copy[-1] = RST0 + (frame.intervals - 1) % 8  # it is EOI; all markers are numbered below
    # Each interval is followed by its marker: number these from 0, and end with EOI.
    many = isinstance(bounds, np.ndarray)
    if not (_renumber_many(copy, place, runs, bounds) if many else _renumber(copy, place, runs, bounds)):
        return None
    copy[-1] = EOI
    return copy


def _renumber(copy: bytearray, place: int, runs: range, bounds: Any) -> bool:
    """Set the numbers of the restart markers, from 0, in a loop.

    Args:
        copy: the JPEG.
        place: offset of the last byte of its headers.
        runs, bounds: as for `_gather`.

    Returns:
        False if a marker is missing where one should be.
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
    """Set the numbers of the restart markers for an array of bounds; see `_renumber`."""
    begins, ends = bounds[:, :-1], bounds[:, 1:]
    if (ends - begins < 3).any():
        return False
    last = ends[:, -1]
    stops = place + np.cumsum(last - bounds[:, 0])
    markers = (ends + (stops - last)[:, None]).ravel()
    numbers = np.arange(runs.start, runs.stop, runs.step)[:, None] + np.arange(ends.shape[1])
    data = np.frombuffer(copy, np.uint8)
    if (data[markers] != RST0 + (numbers.ravel() & 7)).any() or (data[markers - 1] != 0xFF).any():
        return False
    data[markers] = RST0 + (np.arange(len(markers)) & 7)
    return True
