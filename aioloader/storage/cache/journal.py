"""Lines of a cache's journal: the place of each span in the data file of the same segment. Pure.

A line has a fixed size and ends with a check of itself. A line that was cut short, never written (zeros), or damaged
is therefore recognized, and costs only its own span. A line is written after the bytes that it describes, so the
journal of a writer that was killed describes nothing that was not written; the bytes have a checksum all the same,
because a machine that loses power may keep the line and lose the bytes.

| field | type | meaning |
| --- | --- | --- |
| offset, length | i8 | the span in the object |
| place | i8 | offset of its bytes in the data file |
| crc | u4 | CRC-32 of the bytes |
| check | u4 | of the fields before; odd, so that zeros are never a valid line |
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, IntArray


LINE = np.dtype(
    [("offset", "<i8"), ("length", "<i8"), ("place", "<i8"), ("crc", "<u4"), ("check", "<u4")], align=False
)
LINE_NBYTES = LINE.itemsize

# Odd constants of 64 bits: the fractional parts of the square roots of 2, 3, 5 and 7.
_FACTORS = np.array(
    [0x6A09E667F3BCC909, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1], np.uint64
)
_LENGTH_TURN = np.uint64(29)


def _check(lines: Array) -> Array:
    """Compute the checks, uint32 (n,), odd."""
    mixed = lines["offset"].astype(np.uint64) * _FACTORS[0]
    for name, factor in zip(("length", "place", "crc"), _FACTORS[1:], strict=True):
        mixed ^= mixed >> _LENGTH_TURN
        mixed = (mixed + lines[name].astype(np.uint64)) * factor
    mixed ^= mixed >> np.uint64(32)
    check: Array = mixed.astype(np.uint32) | np.uint32(1)
    return check


def format_lines(offset: IntArray, length: IntArray, place: IntArray, crc: Array) -> bytes:
    """Return the lines of some spans, one after the other.

    Args:
        offset, length, place: int64 (n,), see above.
        crc: uint32 (n,).
    """
    lines = np.empty(len(offset), LINE)
    lines["offset"], lines["length"], lines["place"], lines["crc"] = offset, length, place, crc
    lines["check"] = _check(lines)
    return lines.tobytes()


def parse_lines(data: bytes, data_nbytes: int) -> tuple[Array, Array]:
    """Return the valid lines of a part of a journal.

    Args:
        data: the part, from the beginning of a line; an incomplete line at its end is ignored.
        data_nbytes: bytes of the data file; a line with a place beyond is not valid.

    Returns:
        the lines (dtype `LINE`), and the number of each within the part, int64.
    """
    lines = np.frombuffer(data, LINE, len(data) // LINE_NBYTES)
    valid = lines["check"] == _check(lines)
    valid &= (lines["length"] > 0) & (lines["place"] >= 0)
    # Compared so that no sum can overflow.
    valid &= lines["place"] <= data_nbytes - np.minimum(lines["length"], data_nbytes)
    valid &= lines["length"] <= data_nbytes
    numbers = np.flatnonzero(valid)
    return lines[numbers], numbers
