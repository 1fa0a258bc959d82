"""Cuts of a JPEG by its entry of a crop index: a smaller JPEG with the same pixels inside a crop.

Rule: no bit is shifted and no symbol is decoded; parts of the file are put behind new headers. Three kinds of cuts:

- window: some MCUs of some rows. Each row becomes a restart interval. It begins with a *phantom MCU*, whose DC values
  are those before the row's first MCU, and whose few small AC coefficients end at the bit of a byte at which that MCU
  begins. Then the file's bytes follow, up to the one in which the row's last MCU ends. A decoder ignores less than a
  byte before a marker.
- band: whole rows. A row of empty MCUs is put on top; the last of them sets DC values and alignment as a phantom does.
  Then the file's bytes follow in one piece.
- intervals: whole rows of a file that has restart markers between rows. The markers are numbered again.

The pixels of the box are those of a full decode, because a margin of one chroma sample is kept on each side on which
the image continues (see `aioloader.jpeg.cut`); phantoms and empty MCUs affect no more than that margin. Pure.
"""

from __future__ import annotations

import struct
from itertools import cycle
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioloader.jpeg.crop_entry import CATEGORIES, CODES, HEAD, TABLES_AT, CropEntryError, EntryHead
from aioloader.jpeg.cut import Cut
from aioloader.jpeg.frame import DRI, EOI, RST0

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.jpeg.frame import Frame

_START: Final = struct.Struct("<I")
_POINT: Final = struct.Struct("<Q")
_RESTARTS: Final = [bytes((0xFF, RST0 + number)) for number in range(8)]
_END: Final = bytes((0xFF, EOI))
_STUFFED: Final = b"\xff\0"
_LOW_BITS: Final = [255 >> number for number in range(8)]
# A negative value of n bits is stored as value + 2**n - 1.
_NEGATIVE: Final = [(1 << number) - 1 for number in range(16)]
# Cost of a row of a window besides its MCUs, in blocks that a decoder could decode meanwhile.
_ROW_COST = 16


class _Source(NamedTuple):
    """A JPEG and its entry; `scan_at` is the offset in the data at which the scan would begin if it were whole."""

    data: Any
    frame: Frame
    entry: Any
    head: EntryHead
    scan_at: int


def cut_by_entry(
    data: Any, frame: Frame, entry: Any, box: Sequence[int], *, scale: int = 1, left_out: int = 0
) -> Cut | None:
    """Leave out the data that a crop does not need, on all sides.

    Args:
        data: the JPEG; bytes, or a memoryview of bytes.
        frame: its frame.
        entry: its entry, which `check_entry` has accepted.
        box: (x, y, width, height) of the crop in pixels as stored, inside the image.
        scale: as for `aioloader.jpeg.cut`.
        left_out: bytes of the scan before the rows that the box needs, if the data lacks them.

    Returns:
        A JPEG that contains the box; None if a decoder has to read all rows and columns, or nearly all.

    Raises:
        CropEntryError: the entry does not fit the frame.
    """
    head = EntryHead._make(HEAD.unpack_from(entry))
    interval = head.interval
    if head.rows != frame.mcu_rows or not interval or -(-frame.mcus_per_row // interval) != head.points:
        raise CropEntryError("of other bytes")
    x, y, width, height = box
    margin = frame.y_margin * scale
    top = y - margin if y > margin else 0
    bottom = min(frame.height, y + height + margin)
    margin = frame.x_margin * scale
    left = x - margin if x > margin else 0
    right = min(frame.width, x + width + margin)
    first, stop = top // frame.mcu_height, -(-bottom // frame.mcu_height)
    begin, end = left // (frame.mcu_width * head.interval), -(-right // (frame.mcu_width * head.interval))
    blocks = (frame.mcu_width * frame.mcu_height >> 6) + head.components - 1
    columns = min(end * head.interval, frame.mcus_per_row) - begin * head.interval
    # In blocks of MCUs, for all rows: a window, and whole rows with one more on top.
    window = ((columns + 1) * blocks + _ROW_COST) * (stop - first)
    whole = frame.mcus_per_row * blocks * (stop - first + (first > 0 and not head.restart_rows))
    source = _Source(data, frame, entry, head, frame.scan_start - left_out)
    try:
        # Where chroma is interpolated, column 0 has no neighbour on its left; a phantom would be one.
        if window < whole and not (margin and begin == 0):
            return _window(source, (begin, end, first, stop), (right, bottom))
        if first == 0 and bottom == frame.height:
            return None
        if head.restart_rows:
            return _intervals(source, (first, stop), bottom)
        return _band(source, (first, stop), bottom)
    except (struct.error, TypeError, ValueError, IndexError, ArithmeticError) as error:
        # Only an entry that was made up can be inconsistent: its CRC is right.
        raise CropEntryError("damaged") from error


def _window(source: _Source, mcus: tuple[int, int, int, int], limits: tuple[int, int]) -> Cut:
    """Cut some MCUs of some rows.

    Args:
        source: the JPEG and its entry.
        mcus: first point and the one behind the last, first row of MCUs and the one behind the last.
        limits: columns and rows of pixels that are needed, exclusive.
    """
    data, frame, entry, head, scan = source
    begin, end, first, stop = mcus
    view = memoryview(entry)
    nbits = head.nbits + head.nbits_0 + head.nbits_1 + head.nbits_2
    position_mask = (1 << head.nbits) - 1
    at = head.starts_at + 4 * first
    starts = view[at : at + 4 * (stop - first + 1)].cast("I").tolist()
    rows_at = head.points_at + first * head.stride
    # Points of a column, as words: a row is a multiple of 8 bytes.
    nbytes, step = (stop - first - 1) * head.stride + 8, head.stride >> 3
    point_shift = begin * nbits & 7
    at = rows_at + (begin * nbits >> 3)
    here = view[at : at + nbytes].cast("Q")[::step].tolist()
    ends: list[int]
    if end >= head.points:
        columns = frame.mcus_per_row - begin * head.interval
        ends = starts[1:]
        if head.restart_rows:
            # The row ends before a restart marker.
            group = head.restart_rows
            ends = [
                bit - 16 if row % group == 0 and row < head.rows else bit
                for row, bit in enumerate(ends, first + 1)
            ]
    else:
        columns = (end - begin) * head.interval
        shift = end * nbits & 7
        at = rows_at + (end * nbits >> 3)
        there = view[at : at + nbytes].cast("Q")[::step].tolist()
        ends = [(point >> shift & position_mask) + start for point, start in zip(there, starts, strict=False)]
    codes = CODES.unpack_from(entry, HEAD.size)
    luma, chroma, luma_nbits, chroma_nbits = codes[:12], codes[12:24], codes[24:36], codes[36:48]
    pads, pad_nbits = codes[48:56], codes[56:]
    grain, count = frame.mcu_width, columns + 1
    left = begin * head.interval
    width = grain + max(limits[0], (left + columns - 1) * grain + 1) - left * grain
    height = limits[1] - first * frame.mcu_height
    luma_at = TABLES_AT + head.tables_nbytes
    tables = bytes(view[TABLES_AT:luma_at]) + bytes((0xFF, DRI, 0, 4, count >> 8, count & 255))
    pieces: list[Any] = [_headers(data, frame, tables, width, height)]
    empty_luma = bytes(view[luma_at : luma_at + head.empty_luma_nbytes])
    # Before each row but the first: its restart marker.
    markers = cycle([marker + empty_luma for marker in _RESTARTS]) if empty_luma else cycle(_RESTARTS)
    shift_0 = point_shift + head.nbits
    shift_1 = shift_0 + head.nbits_0
    shift_2 = shift_1 + head.nbits_1
    mask_0, mask_1, mask_2 = (1 << head.nbits_0) - 1, (1 << head.nbits_1) - 1, (1 << head.nbits_2) - 1
    least_0, least_1, least_2 = head.least_0, head.least_1, head.least_2
    colour, chroma_end = head.components == 3, head.chroma_end
    negative, low_bits, round_up = _NEGATIVE, _LOW_BITS, 8 * scan + 7
    whole = memoryview(data)
    opening = empty_luma
    for point, at, until, marker in zip(here, starts, ends, markers, strict=False):
        at += point >> point_shift & position_mask
        # Bits of the byte that are not the row's: the phantom ends before the others.
        skipped = at & 7
        at = (at >> 3) + scan
        byte = data[at]
        rest = byte & low_bits[skipped]
        rest_nbits = 8 - skipped
        if colour:
            value = (point >> shift_2 & mask_2) + least_2
            category = value.bit_length()
            if value < 0:
                value += negative[category]
            rest += chroma[category] + (value << chroma_end) << rest_nbits
            rest_nbits += chroma_nbits[category]
            value = (point >> shift_1 & mask_1) + least_1
            category = value.bit_length()
            if value < 0:
                value += negative[category]
            rest += chroma[category] + (value << chroma_end) << rest_nbits
            rest_nbits += chroma_nbits[category]
        value = (point >> shift_0 & mask_0) + least_0
        category = value.bit_length()
        if value < 0:
            value += negative[category]
        length = luma_nbits[category]
        pad = -(length + rest_nbits) & 7
        bits = (luma[category] + value << pad_nbits[pad]) + pads[pad] << rest_nbits
        length += pad_nbits[pad] + rest_nbits
        phantom = (bits + rest).to_bytes(length >> 3, "big")
        if 255 in phantom:
            phantom = phantom.replace(b"\xff", _STUFFED)
        at += 2 if byte == 255 else 1
        until = until + round_up >> 3
        if data[until - 1] == 255:
            until += 1
        pieces += opening, phantom, whole[at:until]
        opening = marker
    # From the headers on, every third piece is the file's. Rows do not overlap, so that a cut is never much larger.
    _check_total(pieces[3::3], data)
    pieces.append(_END)
    return Cut(
        data=b"".join(pieces),
        width=width,
        height=height,
        left=(left - 1) * grain,
        top=first * frame.mcu_height,
        stops_early=False,
    )


def _band(source: _Source, rows: tuple[int, int], bottom: int) -> Cut:
    """Cut whole rows of a file without restart markers.

    Args:
        source: the JPEG and its entry.
        rows: first row of MCUs and the one behind the last.
        bottom: rows of pixels that are needed, exclusive.
    """
    data, frame, entry, head, scan = source
    first, stop = rows
    luma_at = TABLES_AT + head.tables_nbytes
    empty_at = luma_at + head.empty_luma_nbytes
    starts_at = head.starts_at
    (until,) = _START.unpack_from(entry, starts_at + 4 * stop)
    top, height = first * frame.mcu_height, bottom - first * frame.mcu_height
    at = scan
    opening = b""
    if first:
        top -= frame.mcu_height
        height += frame.mcu_height
        (at,) = _START.unpack_from(entry, starts_at + 4 * first)
        (point,) = _POINT.unpack_from(entry, head.points_at + first * head.stride)
        skipped = at & 7
        at = (at >> 3) + scan
        empty = int.from_bytes(entry[empty_at:starts_at], "big") >> 8 * head.empty_nbytes - head.empty_nbits
        length, bits = _repeated(head.empty_nbits, empty, frame.mcus_per_row - 1)
        luma = bytes(entry[luma_at:empty_at]).replace(_STUFFED, b"\xff")
        bits = bits << 8 * len(luma) | int.from_bytes(luma, "big")
        length += 8 * len(luma)
        phantom, nbits = _phantom(entry, head, point >> head.nbits, length - skipped)
        bits = (bits << nbits | phantom) << 8 - skipped | data[at] & _LOW_BITS[skipped]
        length += nbits + 8 - skipped
        opening = bits.to_bytes(length >> 3, "big").replace(b"\xff", _STUFFED)
        at += 2 if data[at] == 255 else 1
    until = (until + 7 >> 3) + scan
    if data[until - 1] == 255 and data[until] == 0:
        until += 1
    tables = bytes(entry[TABLES_AT:luma_at])
    headers = _headers(data, frame, tables, frame.width, height)
    copy = b"".join((headers, opening, memoryview(data)[at:until], _END))
    return Cut(data=copy, width=frame.width, height=height, left=0, top=top, stops_early=False)


def _phantom(entry: Any, head: EntryHead, values: int, before: int) -> tuple[int, int]:
    """Return the last luma block and the chroma blocks of a phantom MCU, and their number of bits.

    Args:
        entry, head: the entry.
        values: the DC values as in a point.
        before: number of bits that the phantom should bring to a multiple of 8.
    """
    codes = CODES.unpack_from(entry, HEAD.size)
    parts = []
    for number in range(head.components):
        nbits = (head.nbits_0, head.nbits_1, head.nbits_2)[number]
        value = (values & (1 << nbits) - 1) + (head.least_0, head.least_1, head.least_2)[number]
        values >>= nbits
        category = value.bit_length()
        if category >= CATEGORIES:
            raise ValueError("a DC value is out of range")
        end = head.chroma_end if number else 0
        code = category + (CATEGORIES if number else 0)
        stored = value if value >= 0 else value + _NEGATIVE[category]
        parts.append((codes[code] + (stored << end), codes[24 + code]))
    pad = -(before + sum(nbits for _, nbits in parts)) & 7
    parts.insert(1, (codes[48 + pad], codes[56 + pad]))
    bits = length = 0
    for part, nbits in parts:
        bits = bits << nbits | part
        length += nbits
    return bits, length


def _repeated(length: int, bits: int, times: int) -> tuple[int, int]:
    """Return some bits repeated, and before that their number; by doubling."""
    all_bits = all_nbits = 0
    while times:
        if times & 1:
            all_bits = all_bits << length | bits
            all_nbits += length
        times >>= 1
        if times:
            bits = bits << length | bits
            length *= 2
    return all_nbits, all_bits


def _intervals(source: _Source, rows: tuple[int, int], bottom: int) -> Cut | None:
    """Cut whole restart intervals of a file that has markers between rows; see `_band` for the arguments."""
    data, frame, entry, head, scan = source
    group = head.restart_rows
    first, stop = rows[0] - rows[0] % group, min(head.rows, -(-rows[1] // group) * group)
    if first == 0 and stop == head.rows:
        return None
    at = head.starts_at + 4 * first
    starts = memoryview(entry)[at : at + 4 * (stop - first + 1)].cast("I").tolist()
    bounds = [(start >> 3) + scan for start in (*starts[:-1:group], starts[-1])]
    count = len(bounds) - 1
    # Before each interval but the file's first one is its marker; the last one ends before a marker, too.
    if stop < head.rows:
        bounds[-1] -= 2
    whole = memoryview(data)
    pieces: list[Any] = []
    for number, start in enumerate(bounds[:-1]):
        end = bounds[number + 1] - (2 if number < count - 1 else 0)
        pieces += whole[start:end], _RESTARTS[number & 7]
    pieces[-1] = _END
    _check_total(pieces[::2], data)
    height = bottom - first * frame.mcu_height
    # Rows of an interval below the box stay: the last interval must be whole.
    height = max(
        height, min(frame.height - first * frame.mcu_height, ((stop - first) - 1) * frame.mcu_height + 1)
    )
    headers = _headers(
        data, frame, bytes(entry[TABLES_AT : TABLES_AT + head.tables_nbytes]), frame.width, height
    )
    copy = b"".join((headers, *pieces))
    return Cut(
        data=copy, width=frame.width, height=height, left=0, top=first * frame.mcu_height, stops_early=False
    )


def _check_total(pieces: Sequence[Any], data: Any) -> None:
    """Raise ValueError if pieces of a file overlap, before memory is allocated for them."""
    if sum(map(len, pieces)) > len(data):
        raise ValueError("pieces overlap")


def _headers(data: Any, frame: Frame, tables: bytes, width: int, height: int) -> bytearray:
    """Return the headers with another size, and segments before the scan's."""
    pieces = []
    place = size_at = 0
    for start, stop in frame.needed:
        if start <= frame.size_at < stop:
            size_at = frame.size_at - start + place
        place += stop - start
        pieces.append(data[start:stop])
    # The scan's segment: marker, length, number of components, 2 bytes for each, 3 more bytes.
    last = pieces.pop()
    scan = len(last) - (8 + 2 * frame.components)
    headers = bytearray().join((*pieces, last[:scan], tables, last[scan:]))
    headers[size_at : size_at + 4] = bytes((height >> 8, height & 255, width >> 8, width & 255))
    return headers
