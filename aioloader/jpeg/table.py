"""The tile table: how long the restart intervals are, written down in COM segments of the JPEG itself.

Rule: the table only saves the search for restart markers; it is never believed. It can be stale, because tools copy
comments when they rewrite a picture. So its geometry must be that of the frame, the image must end where it says, and
whoever uses an interval first looks whether the expected restart markers stand around it (`markers_stand`). If anything
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
# magic, version, bytes per length, part, parts, width, height, restart interval, scan length, intervals in all
_HEAD = struct.Struct(">8sBBHHHHHII")
_MOST_BYTES = 65_533 - _HEAD.size
_LENGTHS: dict[int, np.dtype[Any]] = {2: np.dtype(">u2"), 4: np.dtype(">u4")}

# The two bytes before interval k, for k = 0, 1, 2, ...: RST7 (for k = 0 there are the headers instead), RST0, RST1, ...
_MARKERS = np.frombuffer(b"".join(bytes((0xFF, RST0 + k % 8)) for k in range(7, 15)) * 4096, np.uint16)


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
        int64 (intervals + 1,) as of `find_intervals`, or None. Offsets grow, and the image ends where the table says;
        but nobody has looked for the restart markers between.
    """
    parts = len(frame.tables)
    lengths = []
    common: tuple[int, ...] | None = None
    for number, (start, stop) in enumerate(frame.tables):
        if stop - start < _HEAD.size:
            return None
        _, version, size, part, of, *rest = _HEAD.unpack_from(data, start)
        if version != VERSION or size not in _LENGTHS or part != number or of != parts:
            return None
        if common is not None and common != (size, *rest):
            return None
        common = (size, *rest)
        entries = (stop - start - _HEAD.size) // size
        lengths.append(np.frombuffer(data, _LENGTHS[size], entries, start + _HEAD.size))
    if common is None:
        return None
    _, width, height, interval, scan_length, count = common
    end = frame.scan_start + scan_length
    if (
        width != frame.width
        or height != frame.height
        or interval != frame.restart_interval
        or count != frame.intervals
        or count != sum(map(len, lengths))
        or end + 2 > len(data)
        or data[end] != 0xFF
        or data[end + 1] != EOI
    ):
        return None
    bounds = np.empty(count + 1, np.int64)
    bounds[0] = frame.scan_start - 2
    bounds[1:] = lengths[0] if parts == 1 else np.concatenate(lengths)
    bounds += 2
    bounds.cumsum(out=bounds)
    return bounds if bounds[count] == end + 2 else None


def markers_stand(data: Any, frame: Frame, chosen: Array, first: int, stride: int) -> bool:
    """Whether intervals begin where they are said to: behind the restart marker of their number.

    Args:
        data: the file.
        frame: its frame.
        chosen: int64 (runs, intervals + 1), part of what `claimed_table` gave: where the intervals of each run begin,
            and behind them, where the one after the last begins.
        first: number of the first interval.
        stride: from the first interval of a run to that of the next.
    """
    runs, width = chosen.shape
    last = first + (runs - 1) * stride + width - 1
    markers = _MARKERS if last - first + 8 <= len(_MARKERS) else np.resize(_MARKERS, last - first + 8)
    expected = np.ndarray(chosen.shape, np.uint16, markers.data, first % 8 * 2, (stride * 2, 2))
    pairs = np.ndarray((len(data) - 1,), np.uint16, data, 0, (1,))  # each byte with the next
    right = pairs[chosen - 2] == expected
    # The table was seen to agree with where the scan begins and ends.
    if first == 0:
        right[0, 0] = True
    if last == frame.intervals:
        right[-1, -1] = True
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
    bounds = claimed_table(data, frame)
    if bounds is None or not markers_stand(data, frame, bounds[None], 0, 0):
        return None
    return bounds


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
    lengths = np.diff(bounds) - 2
    scan_length = int(bounds[-1]) - 2 - frame.scan_start
    size = 2 if int(lengths.max()) < 1 << 16 else 4
    table = lengths.astype(_LENGTHS[size]).tobytes()
    most = _MOST_BYTES // size * size
    parts = -(-len(table) // most)
    common = (frame.width, frame.height, frame.restart_interval, scan_length, frame.intervals)
    segments = []
    for part in range(parts):
        body = table[part * most : (part + 1) * most]
        head = _HEAD.pack(TABLE_MAGIC, VERSION, size, part, parts, *common)
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
        A number of MCUs that divides a row: from 3 to 16, and as near to 64 pixels as it goes; else a whole row.
        Smaller tiles would make the file larger, by 3 to 7 bytes each; larger ones give away more around a crop.
    """
    fitting = [count for count in range(3, 17) if frame.mcus_per_row % count == 0]
    wanted = 64 / frame.mcu_width
    return min(fitting, key=lambda count: max(count / wanted, wanted / count), default=frame.mcus_per_row)
