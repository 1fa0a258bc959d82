"""Orientation of images: how the stored image is to be turned for display (EXIF 2.32, section 4.6.4, tag 0x0112).

One rule for all formats and decoders: anything malformed means "as stored". Decoders are configured not to turn images
themselves. Pure.
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioloader.jpeg.frame import Frame

_ORIENTATION = 0x0112
_BYTE, _SHORT, _LONG = 1, 3, 4
# More entries than any camera writes; limits the work that a damaged count can cause.
_MAX_ENTRIES = 512


def orientation_entry(data: Any, start: int = 0, stop: int | None = None) -> tuple[int, int, str] | None:
    """Find the orientation in a TIFF structure (the body of an EXIF block, or a TIFF file).

    Args:
        data: bytes-like.
        start: offset of the structure's byte-order mark; its offsets are relative to this.
        stop: end of the structure, exclusive; None for the end of `data`.

    Returns:
        (orientation 1 to 8, offset of the value in `data`, struct format of the value), or None if there is no
        valid entry.
    """
    stop = len(data) if stop is None else min(stop, len(data))
    if stop - start < 14:
        return None
    mark = bytes(data[start : start + 4])
    if mark == b"II*\0":
        order = "<"
    elif mark == b"MM\0*":
        order = ">"
    else:
        return None
    (first,) = struct.unpack_from(order + "I", data, start + 4)
    table = start + first
    if first < 8 or table + 2 > stop:
        return None
    (count,) = struct.unpack_from(order + "H", data, table)
    for place in range(table + 2, table + 2 + 12 * min(count, _MAX_ENTRIES), 12):
        if place + 12 > stop:
            return None
        tag, kind, values = struct.unpack_from(order + "HHI", data, place)
        if tag != _ORIENTATION:
            continue
        code = {_BYTE: "B", _SHORT: "H", _LONG: "I"}.get(kind)
        if code is None or values != 1:
            return None
        (value,) = struct.unpack_from(order + code, data, place + 8)
        return (value, place + 8, order + code) if 1 <= value <= 8 else None
    return None


def read_orientation(data: Any, start: int = 0, stop: int | None = None) -> int:
    """Return the orientation, 1 to 8, of a TIFF structure; 1 ("as stored") if it has none or is malformed.

    Args:
        data, start, stop: as for `orientation_entry`.
    """
    entry = orientation_entry(data, start, stop)
    return 1 if entry is None else entry[0]


def jpeg_orientation(data: Any, frame: Frame) -> int:
    """Return the orientation of a JPEG, 1 to 8; an EXIF block behind the frame header is ignored.

    Args:
        data: the JPEG, or its headers.
        frame: its frame.
    """
    if frame.exif is None or frame.exif[0] > frame.size_at:
        return 1
    return read_orientation(data, *frame.exif)
