"""Search of a scan for its restart markers.

Rule: within entropy-coded data a byte 0xFF is followed by 0x00 (a stuffed zero), by another 0xFF (a fill byte) or by
the number of a marker. Only restart markers are valid there, in cyclic order from RST0 to RST7; the first other marker
ends the data.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from aioloader.jpeg.frame import DRI, EOI, RST0, Frame, read_frame


def interval_ends(data: Any, frame: Frame) -> list[int] | None:
    """Search the scan for all restart markers.

    Args:
        data: the file; bytes, or a memoryview of bytes.
        frame: its frame, with restart intervals.

    Returns:
        For each restart interval the offset behind the marker that ends it: RSTn with n = k mod 8 for interval k, EOI
        for the last. None if the markers are not those that the frame announces, in their order and up to the EOI.
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
    ends: list[int] = (markers[:count] + 1).tolist()
    return ends


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
    return not frame.restart_interval or interval_ends(data, frame) is not None
