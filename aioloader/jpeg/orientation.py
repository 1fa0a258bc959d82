"""Orientation of images: how the stored image is to be turned for display.

It is an entry of an EXIF block (EXIF 2.32, section 4.6.4, tag 0x0112) or, where the block has none, an attribute of an
XMP packet. One rule for all formats and decoders: anything malformed means "as stored". Decoders are configured not to
turn images themselves. Pure.
"""

from __future__ import annotations

import re
import struct
from typing import TYPE_CHECKING, Any

from aioloader.jpeg.frame import EXIF

if TYPE_CHECKING:
    from aioloader.jpeg.frame import Frame

_ORIENTATION = 0x0112
_CODES = {1: "B", 3: "H", 4: "I"}
# More entries than any camera writes; limits the work that a damaged count can cause.
_MAX_ENTRIES = 512
# Some writers repeat the prefix that the block has in a JPEG; more often than this only a hostile one does.
_MOST_PREFIXES = 8
_IN_XMP = re.compile(rb"tiff:Orientation(?:=[\"']|>)([0-9])")
# A packet in a JPEG is at most 64 KiB.
_LONGEST_XMP = 1 << 20


def read_orientation(data: Any, start: int = 0, stop: int | None = None) -> int | None:
    """Find the orientation in a TIFF structure, the body of an EXIF block.

    Args:
        data: bytes-like.
        start: offset of the structure's byte-order mark, to which its offsets are relative, or of a prefix before it.
        stop: end of the structure, exclusive; None for the end of `data`.

    Returns:
        1 to 8; 1 ("as stored") for an invalid value; None if there is no such entry, or the structure is malformed.
    """
    stop = len(data) if stop is None else min(stop, len(data))
    for _ in range(_MOST_PREFIXES):
        if bytes(data[start : start + 6]) != EXIF:
            break
        start += 6
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
        if kind not in _CODES or values != 1:
            return 1
        (value,) = struct.unpack_from(order + _CODES[kind], data, place + 8)
        return value if 1 <= value <= 8 else 1
    return None


def find_orientation(data: Any, exif: tuple[int, int] | None, xmp: tuple[int, int] | None) -> int | None:
    """Find the orientation in an EXIF block or, where that has none, in an XMP packet.

    Args:
        data: bytes-like.
        exif: (start, stop) of the EXIF block in the data, or None.
        xmp: (start, stop) of the XMP packet, or None.

    Returns:
        1 to 8, or None.
    """
    found = None if exif is None else read_orientation(data, *exif)
    if found is None and xmp is not None:
        said = _IN_XMP.search(data[xmp[0] : min(xmp[1], xmp[0] + _LONGEST_XMP)])
        if said is not None:
            value = int(said[1])
            return value if 1 <= value <= 8 else 1
    return found


def jpeg_orientation(data: Any, frame: Frame) -> int:
    """Return the orientation of a JPEG, 1 to 8.

    Args:
        data: the JPEG, or its headers.
        frame: its frame.
    """
    if frame.exif is None and frame.xmp is None:
        return 1
    return find_orientation(data, frame.exif, frame.xmp) or 1
