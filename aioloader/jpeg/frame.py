"""Headers of a JPEG, read as far as leaving out parts of it requires.

Rule: a `Frame` is returned only for files that are clearly of the kind that can be cut: sequential Huffman coding with
8 bits (SOF0, SOF1), one or three components, all of them interleaved in one scan, the height in the frame header. For
everything else the result is None, and the decoder gets the whole file. The segments are walked once, up to the first
scan; every step moves forward and is checked against the length of the data (ITU T.81, annex B). There are no more
steps than segments in any real file.

The orientation is how the stored image is to be turned for display: an entry of an EXIF block (EXIF 2.32, section
4.6.4, tag 0x0112) or, where the block has none, an attribute of an XMP packet. One rule for all formats and decoders:
anything malformed means "as stored". Decoders are configured not to turn images themselves.
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass
from typing import Any, Final

# Markers: the byte that follows 0xFF (ITU T.81, table B.1).
SOF0: Final = 0xC0
"""Frame header, baseline."""
SOF1: Final = 0xC1
"""Frame header, extended sequential, Huffman coding."""
SOF2: Final = 0xC2
"""Frame header, progressive, Huffman coding."""
DHT: Final = 0xC4
RST0: Final = 0xD0
"""The first of eight restart markers; they are used in cyclic order."""
EOI: Final = 0xD9
SOS: Final = 0xDA
DQT: Final = 0xDB
DRI: Final = 0xDD
APP0: Final = 0xE0
APP1: Final = 0xE1
APP14: Final = 0xEE
APP15: Final = 0xEF
COM: Final = 0xFE

EXIF: Final = b"Exif\0\0"
"""First bytes of the body of an APP1 segment with an EXIF block."""
XMP: Final = b"http://ns.adobe.com/xap/1.0/\0"
"""First bytes of the body of an APP1 segment with an XMP packet."""

_MOST_SEGMENTS = 4096
_FILL = re.compile(rb"\xff+")
_SEGMENT = struct.Struct(">BBH").unpack_from  # 0xFF, marker, length
_KEPT = frozenset((DHT, DQT, APP0, APP14))
_FRAMES = frozenset((SOF0, SOF1))


@dataclass(slots=True, kw_only=True)
class Frame:
    """The frame of a JPEG with one sequential scan.

    Attributes:
        width, height: extents as stored, in pixels; at least 1.
        mcu_width, mcu_height: extents of a minimum coded unit (MCU), in pixels.
        mcus_per_row, mcu_rows: number of MCUs of the scan across and down.
        x_margin, y_margin: pixels beyond a crop that its own pixels can depend on, because a decoder interpolates
            chroma that is stored at a lower resolution: 0 where it is not, else the factor.
        components: 3, or 1 (grey).
        restart_interval: MCUs between two restart markers; 0 if there are none.
        size_at: offset of the frame header's height (2 bytes, big endian); the width follows it.
        scan_start: offset of the entropy-coded data.
        needed: (start, stop) spans of the data that decoding needs, from the start to `scan_start`. Left out are
            comments and application segments other than JFIF's (APP0) and Adobe's (APP14), which determine the colours.
        exif: (start, stop) span of the EXIF block's TIFF structure, or None.
        xmp: (start, stop) span of the XMP packet, or None.
    """

    width: int
    height: int
    mcu_width: int
    mcu_height: int
    mcus_per_row: int
    mcu_rows: int
    x_margin: int
    y_margin: int
    components: int
    restart_interval: int
    size_at: int
    scan_start: int
    needed: list[tuple[int, int]]
    exif: tuple[int, int] | None
    xmp: tuple[int, int] | None

    @property
    def intervals(self) -> int:
        """Return the number of restart intervals of the scan; 1 if there are no restart markers."""
        if not self.restart_interval:
            return 1
        return -(-self.mcus_per_row * self.mcu_rows // self.restart_interval)


def read_frame(data: Any) -> Frame | None:
    """Read the headers of a JPEG.

    Args:
        data: the file: bytes, or a memoryview of bytes.

    Returns:
        The frame, or None if the data is not a JPEG, if its headers are damaged, or if it is of a kind that has to be
        decoded whole: progressive, arithmetic, lossless, hierarchical, 12 bits, CMYK, several scans, components of
        unusual sampling, height after the scan (DNL).
    """
    stop = len(data)
    if stop < 4 or data[0] != 0xFF or data[1] != 0xD8:
        return None
    place = 2
    kept_from = 0
    needed: list[tuple[int, int]] = []
    exif = xmp = None
    interval = 0
    size_at = 0
    for _ in range(_MOST_SEGMENTS):
        body = place + 4
        if body > stop:
            return None
        first, marker, length = _SEGMENT(data, place)
        if first != 0xFF:
            return None
        if marker == 0xFF:  # fill bytes
            place = _FILL.match(data, place).end() - 1  # type: ignore[union-attr]
            continue
        end = body - 2 + length
        if length < 2 or end > stop:
            return None
        if marker in _KEPT:
            pass
        elif APP0 < marker <= APP15 or marker == COM:
            if marker == APP1:
                if exif is None and data[body : body + 6] == EXIF:
                    exif = (body + 6, end)
                elif data[body : body + len(XMP)] == XMP:
                    xmp = (body + len(XMP), end)
            if kept_from < place:
                needed.append((kept_from, place))
            kept_from = end
        elif marker in _FRAMES:
            if size_at or end < body + 9 or data[body] != 8:
                return None
            size_at = body + 1
            components = data[body + 5]
            if end != body + 6 + 3 * components:
                return None
        elif marker == DRI:
            if end != body + 2:
                return None
            interval = data[body] << 8 | data[body + 1]
        elif marker == SOS:
            if not size_at or end != body + 4 + 2 * components or data[body] != components:
                return None
            needed.append((kept_from, end))
            return _frame(data, size_at, scan_start=end, interval=interval, needed=needed, exif=exif, xmp=xmp)
        else:
            return None
        place = end
    return None


def _frame(
    data: Any,
    size_at: int,
    *,
    scan_start: int,
    interval: int,
    needed: list[tuple[int, int]],
    exif: tuple[int, int] | None,
    xmp: tuple[int, int] | None,
) -> Frame | None:
    """Return the frame whose height is at `size_at`; None if it has no extents or an unusual sampling."""
    height = data[size_at] << 8 | data[size_at + 1]
    width = data[size_at + 2] << 8 | data[size_at + 3]
    sampling = _sampling(data, size_at + 4)
    if not height or not width or sampling is None:
        return None
    across, down, x_factor, y_factor = sampling
    return Frame(
        width=width,
        height=height,
        mcu_width=8 * across,
        mcu_height=8 * down,
        mcus_per_row=-(-width // (8 * across)),
        mcu_rows=-(-height // (8 * down)),
        x_margin=x_factor if x_factor > 1 else 0,
        y_margin=y_factor if y_factor > 1 else 0,
        components=data[size_at + 4],
        restart_interval=interval,
        size_at=size_at,
        scan_start=scan_start,
        needed=needed,
        exif=exif,
        xmp=xmp,
    )


def count_components(data: Any) -> int:
    """Return the number of colour components of a JPEG of any kind, such as 4 for CMYK; 0 if no frame header is found.

    Args:
        data: the file: bytes, or a memoryview of bytes.
    """
    place, stop = 2, len(data)
    for _ in range(_MOST_SEGMENTS):
        if place + 10 > stop or data[place] != 0xFF:
            break
        marker = data[place + 1]
        if 0xC0 <= marker <= 0xCF and marker not in (
            0xC4,
            0xC8,
            0xCC,
        ):  # tables, an extension, arithmetic conditioning
            return int(data[place + 9])
        if marker == 0xFF:  # fill bytes
            place = _FILL.match(data, place).end() - 1  # type: ignore[union-attr]
        elif marker == 0x01 or 0xD0 <= marker <= 0xD7:  # markers without a length
            place += 2
        else:
            place += 2 + (data[place + 2] << 8 | data[place + 3])
    return 0


def _sampling(data: Any, components_at: int) -> tuple[int, int, int, int] | None:
    """Read the sampling factors of a frame header.

    Args:
        data: the file.
        components_at: offset of the number of components.

    Returns:
        Blocks of luma in an MCU across and down, and the factors by which luma is finer than chroma across and down;
        None for factors that are invalid or unusual.
    """
    components = data[components_at]
    if components == 1:
        # A scan of one component has MCUs of one block, regardless of its sampling factors.
        return 1, 1, 1, 1
    if components != 3:
        return None
    luma, chroma = data[components_at + 2], data[components_at + 5]
    if data[components_at + 8] != chroma:
        return None
    across, down = luma >> 4, luma & 15
    x_chroma, y_chroma = chroma >> 4, chroma & 15
    if not x_chroma or not y_chroma or across % x_chroma or down % y_chroma or across > 4 or down > 4:
        return None
    # A factor of 0 for luma passes the divisions; it is never valid.
    if not across or not down:
        return None
    return across, down, across // x_chroma, down // y_chroma


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
