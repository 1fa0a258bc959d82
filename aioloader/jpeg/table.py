"""The tile table: where the restart intervals lie, written down in COM segments of the JPEG itself.

Rule: the table only saves the search for restart markers; it is never believed. It can be stale, because tools copy
comments when they rewrite a picture. So its geometry must be that of the frame, the scan must end where it says, and
whoever uses an offset first looks whether the expected restart marker stands there (`markers_stand`); if anything
differs, the scan is searched. Layout: docs/format.md.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import LoaderError
from aioloader.jpeg.frame import read_frame
from aioloader.jpeg.markers import COM, EOI, RST0, TABLE_MAGIC
from aioloader.jpeg.scan import find_intervals

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader._types import Array
    from aioloader.jpeg.frame import Frame

__all__ = (
    "NotTileableError",
    "claimed_table",
    "is_tiled",
    "markers_stand",
    "restart_interval",
    "tile_table",
    "with_tile_table",
)

VERSION = 1
# magic, version, 0, part, parts, width, height, restart interval, scan length, intervals in all
_HEAD = struct.Struct(">8sBBHHHHHII")
_MOST_PER_SEGMENT = (65_533 - _HEAD.size) // 4


class NotTileableError(LoaderError, ValueError):
    """A tile table was asked for a JPEG that can have none.

    Attributes:
        reason: why, in words.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"no tile table is possible: {reason}; rewrite the picture as a baseline JPEG with restart markers first"
        )
        self.reason = reason


def claimed_table(data: Any, frame: Frame) -> Array | None:
    """What the file's own table says about the intervals, if it belongs to a picture of this geometry.

    Args:
        data: the file; bytes, or a memoryview of bytes.
        frame: its frame, with restart intervals.

    Returns:
        int64 (intervals + 1,) as of `find_intervals`, but with offsets that nobody has checked, or None. The scan ends
        where the table says.
    """
    count = frame.intervals
    bounds = np.empty(count + 1, np.int64)
    place = 1
    scan_length = 0
    for number, (start, stop) in enumerate(frame.tables):
        if stop - start < _HEAD.size:
            return None
        head = _HEAD.unpack_from(data, start)
        entries = (stop - start - _HEAD.size) // 4
        if (
            head[1:9] != (VERSION, 0, number, len(frame.tables), *_geometry(frame), head[8])
            or head[9] != count
            or place + entries > count
            or (number and head[8] != scan_length)
        ):
            return None
        scan_length = head[8]
        bounds[place : place + entries] = np.frombuffer(data, ">u4", entries, start + _HEAD.size)
        place += entries
    end = frame.scan_start + scan_length
    if place != count or end + 2 > len(data) or data[end] != 0xFF or data[end + 1] != EOI:
        return None
    bounds[0] = 0
    bounds[count] = scan_length + 2
    bounds += frame.scan_start
    return bounds


def _geometry(frame: Frame) -> tuple[int, int, int]:
    return frame.width, frame.height, frame.restart_interval


def markers_stand(text: Array, numbers: Array, bounds: Array, frame: Frame) -> bool:
    """Whether intervals begin where they are said to: behind the restart marker of their number.

    Args:
        text: uint8, the file.
        numbers: int64, numbers of intervals; the number of intervals itself stands for the end of the image.
        bounds: int64, of the same shape: where they are said to begin.
        frame: the frame of the file.
    """
    if int(bounds.min()) < frame.scan_start or int(bounds.max()) > len(text):
        return False
    expected = ((numbers - 1) & 7) + RST0
    found = text[bounds - 1]
    right = (found == expected) & (text[bounds - 2] == 0xFF)
    if not right.all():
        # The first interval follows the headers, and the last is followed by EOI.
        right |= (numbers == 0) & (bounds == frame.scan_start)
        right |= (numbers == frame.intervals) & (found == EOI) & (text[bounds - 2] == 0xFF)
    return bool(right.all())


def tile_table(data: Any, frame: Frame) -> Array | None:
    """Where the restart intervals of a JPEG lie: from its own table if that holds, else by a search.

    Args:
        data: the file; bytes, or a memoryview of bytes.
        frame: its frame.

    Returns:
        int64 (intervals + 1,): `bounds`, absolute offsets. Interval k is ``data[bounds[k] : bounds[k + 1] - 2]``; the
        two bytes after it are RSTn with n = k mod 8, or EOI after the last. None if there are no restart intervals, or
        the markers are not those that the frame announces.
    """
    if not frame.restart_interval:
        return None
    bounds = _fitting_table(data, frame)
    return find_intervals(data, frame) if bounds is None else bounds


def _fitting_table(data: Any, frame: Frame) -> Array | None:
    bounds = claimed_table(data, frame) if frame.tables else None
    if bounds is None or (np.diff(bounds) < 2).any():
        return None
    text = np.frombuffer(data, np.uint8)
    return bounds if markers_stand(text, np.arange(len(bounds)), bounds, frame) else None


def with_tile_table(data: Any) -> bytes:
    """Put a fresh tile table into a JPEG with restart markers; tables that it had are removed.

    Args:
        data: the file; bytes, or a memoryview of bytes.

    Returns:
        The same file with COM segments before its frame header. Every decoder reads it as before.

    Raises:
        NotTileableError: not a sequential JPEG with one scan, or without restart markers, or they are damaged.
    """
    frame = read_frame(data)
    if frame is None:
        raise NotTileableError("this is no baseline JPEG with one scan that holds all components")
    if not frame.restart_interval:
        raise NotTileableError("the JPEG has no restart markers")
    bounds = find_intervals(data, frame)
    if bounds is None:
        raise NotTileableError("the restart markers in the scan are not those that its headers announce")
    offsets = (bounds[1:-1] - frame.scan_start).astype(">u4")
    scan_length = int(bounds[-1]) - 2 - frame.scan_start
    parts = max(1, -(-len(offsets) // _MOST_PER_SEGMENT))
    segments = []
    for number in range(parts):
        body = offsets[number * _MOST_PER_SEGMENT : (number + 1) * _MOST_PER_SEGMENT].tobytes()
        head = _HEAD.pack(
            TABLE_MAGIC, VERSION, 0, number, parts, *_geometry(frame), scan_length, frame.intervals
        )
        segments.append(struct.pack(">BBH", 0xFF, COM, 2 + len(head) + len(body)) + head + body)
    here = frame.size_at - 5  # the frame header's marker: behind it are length and precision
    before = [(start - 4, stop) for start, stop in frame.tables if stop <= here]
    after = [(start - 4, stop) for start, stop in frame.tables if stop > here]
    return b"".join((*_without(data, 0, here, before), *segments, *_without(data, here, len(data), after)))


def _without(data: Any, start: int, stop: int, spans: list[tuple[int, int]]) -> Iterator[Any]:
    for left_out, goes_on in spans:
        yield data[start:left_out]
        start = goes_on
    yield data[start:stop]


def is_tiled(data: Any) -> bool:
    """Whether crops of this JPEG can be decoded alone without a search.

    Args:
        data: the file; bytes, or a memoryview of bytes.

    Returns:
        True for a JPEG with restart intervals that divide its rows of MCUs (or are one row), and a tile table that
        holds.
    """
    frame = read_frame(data)
    return (
        frame is not None
        and frame.restart_interval > 0
        and frame.mcus_per_row % frame.restart_interval == 0
        and _fitting_table(data, frame) is not None
    )


def restart_interval(frame: Frame) -> int:
    """The restart interval to rewrite a picture with, so that crops of it can be decoded alone.

    Args:
        frame: the picture's frame, with or without restart markers of its own.

    Returns:
        A number of MCUs that divides a row: 4 to 8 where one of these does (the largest), else a whole row.
    """
    for interval in (8, 7, 6, 5, 4):
        if frame.mcus_per_row % interval == 0:
            return interval
    return frame.mcus_per_row
