"""What the headers of a JPEG say, as far as leaving parts of it out needs to know.

Rule: only what is plainly sound is a `Frame`: sequential Huffman coding with 8 bits (SOF0, SOF1), one or three
components, all of them interleaved in one scan, a height that stands in the frame header. Everything else is None, and
goes to the decoder whole. The segments are walked once, up to the first scan; every step moves forward and is checked
against the length of the data (ITU T.81, annex B).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from aioloader.jpeg.markers import (
    APP0,
    APP1,
    APP14,
    APP15,
    COM,
    DHT,
    DQT,
    DRI,
    EXIF,
    SOF0,
    SOF1,
    SOS,
    TABLE_MAGIC,
)

__all__ = ("Frame", "read_frame")

_KEPT = frozenset((DHT, DQT, APP0, APP14))
_FRAMES = frozenset((SOF0, SOF1))


@dataclass(slots=True)
class Frame:
    """The frame of a JPEG with one sequential scan.

    Attributes:
        width, height: extents as stored, in pixels; at least 1.
        mcu_width, mcu_height: extents of a minimum coded unit (MCU), in pixels.
        mcus_per_row, mcu_rows: how many MCUs the scan has across and down.
        x_margin, y_margin: pixels beyond a crop that its own pixels can depend on, because a decoder interpolates
            chroma that is stored at a lower resolution: 0 where it is not, else the factor.
        restart_interval: MCUs between two restart markers; 0 if there are none.
        size_at: where the frame header's height stands (2 bytes, big endian); the width follows it.
        scan_start: where the entropy-coded data begins.
        needed: (start, stop) spans of the data that decoding needs, from the start to `scan_start`. Left out are
            comments and application segments other than JFIF's (APP0) and Adobe's (APP14), which tell the colours.
        tables: (start, stop) spans of the bodies of COM segments that hold a tile table.
        exif: (start, stop) span of the EXIF block's TIFF structure, or None.
    """

    width: int
    height: int
    mcu_width: int
    mcu_height: int
    mcus_per_row: int
    mcu_rows: int
    x_margin: int
    y_margin: int
    restart_interval: int
    size_at: int
    scan_start: int
    needed: list[tuple[int, int]]
    tables: list[tuple[int, int]]
    exif: tuple[int, int] | None

    @property
    def intervals(self) -> int:
        """How many restart intervals the scan has; 1 if there are no restart markers."""
        if not self.restart_interval:
            return 1
        return -(-self.mcus_per_row * self.mcu_rows // self.restart_interval)


def read_frame(data: Any) -> Frame | None:
    """Read the headers of a JPEG.

    Args:
        data: the file: bytes, or a memoryview of bytes.

    Returns:
        The frame, or None if the data is no JPEG, is damaged as far as its headers go, or is of a kind that has to be
        decoded whole: progressive, arithmetic, lossless, hierarchical, 12 bits, CMYK, several scans, components of
        unusual sampling, height given after the scan (DNL).
    """
    stop = len(data)
    if stop < 4 or data[0] != 0xFF or data[1] != 0xD8:
        return None
    place = 2
    kept_from = 0
    needed: list[tuple[int, int]] = []
    tables: list[tuple[int, int]] = []
    exif = None
    interval = 0
    size_at = 0
    while place + 4 <= stop:
        if data[place] != 0xFF:
            return None
        marker = data[place + 1]
        if marker == 0xFF:  # a fill byte
            place += 1
            continue
        body = place + 4
        end = place + 2 + (data[place + 2] << 8 | data[place + 3])
        if end < body or end > stop:
            return None
        if marker in _KEPT:
            pass
        elif APP0 < marker <= APP15 or marker == COM:
            if marker == APP1:
                if exif is None and data[body : body + 6] == EXIF:
                    exif = (body + 6, end)
            elif marker == COM and data[body : body + 8] == TABLE_MAGIC:
                tables.append((body, end))
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
            return _frame(data, components, interval, size_at, end, needed, tables, exif)
        else:
            return None
        place = end
    return None


def _frame(
    data: Any,
    components: int,
    interval: int,
    size_at: int,
    scan_start: int,
    needed: list[tuple[int, int]],
    tables: list[tuple[int, int]],
    exif: tuple[int, int] | None,
) -> Frame | None:
    height = data[size_at] << 8 | data[size_at + 1]
    width = data[size_at + 2] << 8 | data[size_at + 3]
    if not height or not width:
        return None
    if components == 1:
        # A scan of one component has MCUs of one block, whatever its sampling factors.
        across = down = x_factor = y_factor = 1
    elif components == 3:
        luma, chroma = data[size_at + 6], data[size_at + 9]
        if data[size_at + 12] != chroma:
            return None
        across, down = luma >> 4, luma & 15
        x_chroma, y_chroma = chroma >> 4, chroma & 15
        if not x_chroma or not y_chroma or across % x_chroma or down % y_chroma or across > 4 or down > 4:
            return None
        # A factor of 0 for luma falls through the division; it is never valid.
        x_factor, y_factor = across // x_chroma, down // y_chroma
        if not x_factor or not y_factor:
            return None
    else:
        return None
    mcu_width, mcu_height = 8 * across, 8 * down
    return Frame(
        width,
        height,
        mcu_width,
        mcu_height,
        -(-width // mcu_width),
        -(-height // mcu_height),
        x_factor if x_factor > 1 else 0,
        y_factor if y_factor > 1 else 0,
        interval,
        size_at,
        scan_start,
        needed,
        tables,
        exif,
    )
