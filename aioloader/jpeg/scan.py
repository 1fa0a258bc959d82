"""The entropy-coded data of a scan: where its restart intervals lie, and where it ends.

Rule: within entropy-coded data a byte 0xFF is followed by 0x00 (a stuffed zero), by another 0xFF (a fill byte) or by
the number of a marker. Only restart markers belong there, in turn from RST0 to RST7; the first other marker ends it.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.jpeg.markers import EOI, RST0

if TYPE_CHECKING:
    from aioloader.jpeg.frame import Frame

__all__ = ("find_intervals", "image_end")

_EOI = re.compile(rb"\xff\xd9")


def image_end(data: Any, scan_start: int) -> int | None:
    """Where the image ends: after its EOI marker, which other data may follow.

    A file that ends with an EOI marker is taken at its word, which costs nothing. Otherwise the first one after the
    start of the scan is looked for: a marker never occurs inside entropy-coded data.

    Args:
        data: the file; bytes, or a memoryview of bytes.
        scan_start: where the entropy-coded data begins.

    Returns:
        Offset behind the EOI marker, or None if there is none: the file was cut off.
    """
    stop = len(data)
    if stop >= scan_start + 2 and data[stop - 2] == 0xFF and data[stop - 1] == EOI:
        return stop
    found = _EOI.search(data, scan_start)
    return None if found is None else found.end()


def find_intervals(data: Any, frame: Frame) -> list[int] | None:
    """Look for all restart markers of the scan.

    Args:
        data: the file; bytes, or a memoryview of bytes.
        frame: its frame, with restart intervals.

    Returns:
        intervals + 1 absolute offsets, `bounds`. Interval k is ``data[bounds[k] : bounds[k + 1] - 2]``; the two bytes
        after it are RSTn with n = k mod 8, or EOI after the last. None if the markers are not those that the frame
        announces, in their order and up to the EOI.
    """
    start = frame.scan_start
    text = np.frombuffer(data, np.uint8)
    marks = np.flatnonzero(text[start:-1] == 0xFF) + (start + 1)
    kinds = text[marks]
    real = (kinds != 0) & (kinds != 0xFF)
    marks, kinds = marks[real], kinds[real]
    count = frame.intervals
    if len(marks) < count or kinds[count - 1] != EOI:
        return None
    if ((kinds[: count - 1] - RST0) != (np.arange(count - 1) & 7)).any():
        return None
    return [start, *(marks[:count] + 1).tolist()]
