"""Rows of a JPEG that a crop needs, for readers that fetch only these and the headers.

Rule: a part of a JPEG has its headers, and the bytes of some consecutive rows of MCUs right behind them. An entry of a
crop index says where these bytes are, and has the CRC-32 of all bytes before each row. A CRC can be continued: begun
with that of the bytes before the first row, that of the rows must end with that of the bytes before the row behind
them. The last bytes of a row are also the first ones of the next, so the entry has these itself. Pure.
"""

from __future__ import annotations

import struct
import zlib
from typing import TYPE_CHECKING, Any, Final

from aioloader.jpeg.crop_entry import EDGE_NBYTES, HEAD, CropEntryError, EntryHead, check_intact

if TYPE_CHECKING:
    from collections.abc import Sequence

_NUMBER: Final = struct.Struct("<I")
_MOST_BLOCKS_DOWN = 4


def read_head(entry: Any) -> EntryHead:
    """Read the head of an entry, after a check that the entry is intact.

    Args:
        entry: bytes, or a memoryview of bytes.

    Raises:
        CropEntryError: it is not, or its parts are not inside of it.
    """
    check_intact(entry)
    head = EntryHead._make(HEAD.unpack_from(entry))
    # Only an entry that was made up can fail here: its CRC is right.
    sizes = head.rows and head.width and head.height and 1 <= head.orientation <= 8
    if (
        not sizes
        or not 1 <= head.mcu_blocks_down <= _MOST_BLOCKS_DOWN
        or -(-head.height // (8 * head.mcu_blocks_down)) != head.rows
        or head.points_at > len(entry)
    ):
        raise CropEntryError("damaged")
    return head


def needed_rows(head: EntryHead, box: Sequence[int], scale: int = 1) -> tuple[int, int]:
    """Return the first row of MCUs that a cut reads, and the one behind the last.

    Args:
        head: of the entry.
        box: (x, y, width, height) of the crop in pixels as stored, inside the image.
        scale: as for `aioloader.jpeg.cut`.
    """
    _, y, _, height = box
    margin, mcu_height = head.y_margin * scale, 8 * head.mcu_blocks_down
    first = max(0, y - margin) // mcu_height
    stop = -(-min(head.height, y + height + margin) // mcu_height)
    group = head.restart_rows
    if group > 1:
        # Whole rows are cut as restart intervals.
        first, stop = first - first % group, min(head.rows, -(-stop // group) * group)
    return first, stop


def row_bytes(entry: Any, head: EntryHead, rows: tuple[int, int]) -> tuple[int, int]:
    """Return where in the scan the bytes of some rows begin and end.

    Args:
        entry, head: the entry.
        rows: the first row, and the one behind the last.

    Raises:
        CropEntryError: the entry contradicts itself.
    """
    (begin,) = _NUMBER.unpack_from(entry, head.starts_at + 4 * rows[0])
    (end,) = _NUMBER.unpack_from(entry, head.starts_at + 4 * rows[1])
    begin, end = begin >> 3, (end >> 3) + EDGE_NBYTES
    if not begin < end or head.scan_start + end > head.jpeg_nbytes:
        raise CropEntryError("damaged")
    return begin, end


def check_part(data: Any, entry: Any, head: EntryHead, rows: tuple[int, int]) -> int:
    """Check that the part of a JPEG is one of exactly the JPEG that an entry was made from.

    Args:
        data: its headers, and the bytes of the rows; bytes, or a memoryview of bytes.
        entry, head: the entry, from `read_head`.
        rows: the first row, and the one behind the last.

    Returns:
        the bytes of the scan before these rows, which are not in `data`.

    Raises:
        CropEntryError: it is not.
    """
    first, stop = rows
    if not 0 <= first < stop <= head.rows:
        raise CropEntryError("of other bytes")
    begin, end = row_bytes(entry, head, rows)
    at = head.scan_start
    if len(data) != at + end - begin:
        raise CropEntryError("of other bytes")
    crcs_at, edge_at = head.crcs_at, head.edges_at + EDGE_NBYTES * stop
    crcs = [_NUMBER.unpack_from(entry, crcs_at + 4 * row)[0] for row in (0, first, stop)]
    if (
        zlib.crc32(data[:at]) != crcs[0]
        or zlib.crc32(data[at:-EDGE_NBYTES], crcs[1]) != crcs[2]
        or data[-EDGE_NBYTES:] != entry[edge_at : edge_at + EDGE_NBYTES]
    ):
        raise CropEntryError("of other bytes")
    return begin
