"""Places of the restart intervals: found by a search of the scan, or read from a table in COM segments of the JPEG.

Rule: within entropy-coded data a byte 0xFF is followed by 0x00 (a stuffed zero), by another 0xFF (a fill byte) or by
the number of a marker. Only restart markers are valid there, in cyclic order from RST0 to RST7; the first other marker
ends the data.

The tile table only saves the search for restart markers; it is never trusted. It can be stale, because tools copy
comments when they rewrite an image. So its geometry must be that of the frame, the image must end at the offset in the
table, and code that uses an interval first checks that the expected restart markers are around it. If anything
differs, the scan is searched. Only those entries are read that a crop needs. Layout: docs/format.md.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

import numpy as np

from aioloader.errors import LoaderError
from aioloader.jpeg.frame import COM, DRI, EOI, RST0, TABLE_MAGIC, Frame, read_frame

VERSION = 1
# magic, version, 0, part, parts, width, height, restart interval, scan length, intervals in all
_HEAD = struct.Struct("<8sBBHHHHHII")
_ENTRIES = (65_533 - _HEAD.size) // 4


class NotTileableError(LoaderError, ValueError):
    """Error raised when a tile table is requested for a JPEG that cannot have one.

    Attributes:
        reason: the reason, in words.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(
            f"no tile table is possible: {reason}; rewrite the image as a baseline JPEG with restart markers first"
        )
        self.reason = reason


class ClaimedTable(NamedTuple):
    """A table for an image of the frame's geometry; its restart markers have not been checked.

    Attributes:
        entries: buffer of the entries: ``uint32``, little endian, intervals + 1 of them. Entry k is the start of
            interval k, in bytes from the start of the scan; the last one is the end of the image.
        start: offset of the first entry in `entries`.
        end: offset of the image's end in the file, behind an EOI marker, which has been checked.
    """

    entries: Any
    start: int
    end: int


def claimed_table(data: Any, frame: Frame) -> ClaimedTable | None:
    """Return the file's table if it fits the frame, else None.

    Args:
        data: the file; bytes, or a memoryview of bytes.
        frame: its frame, with restart intervals.
    """
    parts = len(frame.tables)
    common: list[int] = []
    for number, (start, stop) in enumerate(frame.tables):
        if stop - start < _HEAD.size:
            return None
        _, version, _, part, of, *rest = _HEAD.unpack_from(data, start)
        if version != VERSION or part != number or of != parts or (number and common != rest):
            return None
        common = rest
    if not common:
        return None
    width, height, interval, scan_length, count = common
    end = frame.scan_start + scan_length
    if (
        width != frame.width
        or height != frame.height
        or interval != frame.restart_interval
        or count != frame.intervals
        or scan_length < 2
        or end > len(data)
        or data[end - 1] != EOI
        or data[end - 2] != 0xFF
    ):
        return None
    entries, first = data, frame.tables[0][0] + _HEAD.size
    size = frame.tables[0][1] - first
    if parts > 1:
        entries, first = b"".join(data[start + _HEAD.size : stop] for start, stop in frame.tables), 0
        size = len(entries)
    return ClaimedTable(entries, first, end) if size == 4 * (count + 1) else None


def tile_table(data: Any, frame: Frame) -> list[int] | None:
    """Return the places of the restart intervals of a JPEG: from its table if that is correct, else by a search.

    Args:
        data: the file; bytes, or a memoryview of bytes.
        frame: its frame.

    Returns:
        intervals + 1 absolute offsets, `bounds`. Interval k is ``data[bounds[k] : bounds[k + 1] - 2]``; the two bytes
        after it are RSTn with n = k mod 8, or EOI after the last. None if there are no restart intervals, or the
        markers are not those that the frame announces.
    """
    return (_fitting_table(data, frame) or find_intervals(data, frame)) if frame.restart_interval else None


def find_intervals(data: Any, frame: Frame) -> list[int] | None:
    """Search the scan for all restart markers.

    Args:
        data: the file; bytes, or a memoryview of bytes.
        frame: its frame, with restart intervals.

    Returns:
        The places of the intervals, as from `tile_table`. None if the markers are not those that the frame announces,
        in their order and up to the EOI.
    """
    start = frame.scan_start
    text = np.frombuffer(data, np.uint8)
    markers = np.flatnonzero(text[start:-1] == 0xFF) + (start + 1)
    kinds = text[markers]
    real = (kinds != 0) & (kinds != 0xFF)
    markers, kinds = markers[real], kinds[real]
    count = frame.intervals
    if len(markers) < count or kinds[count - 1] != EOI:
        return None
    if ((kinds[: count - 1] - RST0) != (np.arange(count - 1) & 7)).any():
        return None
    return [start, *(markers[:count] + 1).tolist()]


def markers_are_whole(data: Any) -> bool:
    """Return True if no restart marker of a JPEG is missing or out of order.

    Where one is, a decoder fills in the data that it could not read, and libjpeg reports that only if it is its first
    warning.

    Args:
        data: the file; bytes, or a memoryview of bytes.
    """
    frame = read_frame(data)
    if frame is None:
        # Several scans, or an unusual kind: the only easy check is that it has no restart intervals at all.
        return bytes((0xFF, DRI, 0, 4)) not in bytes(data)
    return not frame.restart_interval or tile_table(data, frame) is not None


def _fitting_table(data: Any, frame: Frame) -> list[int] | None:
    table = claimed_table(data, frame)
    if table is None:
        return None
    entries = struct.unpack_from(f"<{frame.intervals + 1}I", table.entries, table.start)
    bounds = [entry + frame.scan_start for entry in entries]
    if bounds[0] != frame.scan_start or bounds[-1] != table.end:
        return None
    before = bounds[0]
    for number, bound in enumerate(bounds[1:-1]):
        if not before + 2 < bound < table.end:
            return None
        if data[bound - 1] != RST0 + number % 8 or data[bound - 2] != 0xFF:
            return None
        before = bound
    return bounds


def with_tile_table(data: Any) -> bytes:
    """Insert a new tile table into a JPEG with restart markers; tables that it had are removed.

    Args:
        data: the file; bytes, or a memoryview of bytes.

    Returns:
        The same file with COM segments before its frame header. Every decoder reads it as before.

    Raises:
        NotTileableError: not a sequential JPEG with one scan, or without restart markers, or they are damaged.
    """
    frame = read_frame(data)
    if frame is None:
        raise NotTileableError("this is not a baseline JPEG with one scan that holds all components")
    if not frame.restart_interval:
        raise NotTileableError("the JPEG has no restart markers")
    bounds = find_intervals(data, frame)
    if bounds is None:
        raise NotTileableError("the restart markers in the scan are not those that its headers announce")
    start = frame.scan_start
    table = struct.pack(f"<{len(bounds)}I", *(bound - start for bound in bounds))
    parts = -(-len(bounds) // _ENTRIES)
    geometry = (frame.width, frame.height, frame.restart_interval, bounds[-1] - start, frame.intervals)
    segments = []
    for part in range(parts):
        body = table[part * _ENTRIES * 4 : (part + 1) * _ENTRIES * 4]
        head = _HEAD.pack(TABLE_MAGIC, VERSION, 0, *(part, parts, *geometry))
        segments.append(struct.pack(">BBH", 0xFF, COM, 2 + len(head) + len(body)) + head + body)
    here = frame.size_at - 5  # the frame header's marker: length and precision follow it
    pieces = []
    place = 0
    for left_out, goes_on in sorted([(here, here), *((start - 4, stop) for start, stop in frame.tables)]):
        pieces.append(data[place:left_out])
        if left_out == here:
            pieces += segments
        place = goes_on
    return b"".join((*pieces, data[place:]))


def is_tiled(data: Any) -> bool:
    """Return True if crops of this JPEG can be decoded alone without a search.

    Args:
        data: the file; bytes, or a memoryview of bytes.

    Returns:
        True for a JPEG with restart intervals that divide its rows of MCUs (or are one row), and a correct tile table.
    """
    frame = read_frame(data)
    return (
        frame is not None
        and frame.restart_interval > 0
        and frame.mcus_per_row % frame.restart_interval == 0
        and _fitting_table(data, frame) is not None
    )


def restart_interval(frame: Frame) -> int:
    """Return the restart interval to rewrite an image with, so that crops of it can be decoded alone.

    Args:
        frame: the image's frame, with or without restart markers.

    Returns:
        A number of MCUs that divides a row: at most 24, and as near to 32 pixels as possible. Smaller tiles would make
        the file larger, by 3 to 7 bytes each; larger ones decode more around a crop.
    """
    fitting = [count for count in range(1, 25) if frame.mcus_per_row % count == 0]
    wanted = 32 / frame.mcu_width
    return min(fitting, key=lambda count: max(count / wanted, wanted / count))
