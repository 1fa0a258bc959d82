"""Lines of a cache's journal: which span lies where in the file of bytes beside it. Pure.

A line has a fixed size and ends with a check of itself. A line that was cut short, never written (zeros), or damaged
is therefore told from a sound one, and costs only its own span. A line is written after the bytes that it names, so the
journal of a writer that was killed names nothing that was not written; the bytes have a checksum all the same, because
a machine that loses power may keep the one and lose the other.

| field | type | meaning |
| --- | --- | --- |
| offset, length | i8 | the span in the object |
| place | i8 | where its bytes begin in the data file |
| crc | u4 | CRC-32 of the bytes |
| check | u4 | of the fields before; odd, so that zeros are no line |
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, IntArray

__all__ = ("LINE", "LINE_NBYTES", "format_lines", "parse_lines")

LINE = np.dtype(
    [("offset", "<i8"), ("length", "<i8"), ("place", "<i8"), ("crc", "<u4"), ("check", "<u4")], align=False
)
LINE_NBYTES = LINE.itemsize

# Odd constants of 64 bits: the fractional parts of the square roots of 2, 3, 5 and 7.
_FACTORS = np.array(
    [0x6A09E667F3BCC909, 0xBB67AE8584CAA73B, 0x3C6EF372FE94F82B, 0xA54FF53A5F1D36F1], np.uint64
)
_LENGTH_TURN = np.uint64(29)


def _check(lines: Any) -> Any:
    """uint32 (n,), odd."""
    mixed = lines["offset"].astype(np.uint64) * _FACTORS[0]
    for name, factor in zip(("length", "place", "crc"), _FACTORS[1:], strict=True):
        mixed ^= mixed >> _LENGTH_TURN
        mixed = (mixed + lines[name].astype(np.uint64)) * factor
    mixed ^= mixed >> np.uint64(32)
    return mixed.astype(np.uint32) | np.uint32(1)


def format_lines(offset: IntArray, length: IntArray, place: IntArray, crc: Array) -> bytes:
    """The lines of some spans, one after the other.

    Args:
        offset, length, place: int64 (n,), see above.
        crc: uint32 (n,).
    """
    lines = np.empty(len(offset), LINE)
    lines["offset"], lines["length"], lines["place"], lines["crc"] = offset, length, place, crc
    lines["check"] = _check(lines)
    return lines.tobytes()


def parse_lines(data: bytes, data_nbytes: int) -> tuple[Array, Array]:
    """The sound lines of a piece of a journal.

    Args:
        data: the piece, from the beginning of a line; a part of a line at its end is passed over.
        data_nbytes: bytes of the data file; a line that names bytes beyond is not sound.

    Returns:
        the lines (dtype `LINE`), and the number of each within the piece, int64.
    """
    lines = np.frombuffer(data, LINE, len(data) // LINE_NBYTES)
    sound = lines["check"] == _check(lines)
    sound &= (lines["length"] > 0) & (lines["place"] >= 0)
    # Compared so that no sum can overflow.
    sound &= lines["place"] <= data_nbytes - np.minimum(lines["length"], data_nbytes)
    sound &= lines["length"] <= data_nbytes
    numbers = np.flatnonzero(sound)
    return lines[numbers], numbers
