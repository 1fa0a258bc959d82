"""Cuts of a JPEG by its entry of a crop index: a smaller JPEG with the same pixels inside a crop.

Rule: no symbol of the crop is decoded or moved inside its byte; parts of the file are put behind new headers, as one
scan without restart markers, which a decoder reads fastest. Between two parts there is a *phantom MCU*: its DC
differences lead from the values behind the last MCU of one part to those before the first MCU of the next, and its few
small AC coefficients end at the bit of a byte at which that MCU begins. There are three kinds of cuts:

- window: some MCUs of some rows, each row a part. The phantoms are the first column of the cut; or the last one, where
  chroma is interpolated and the crop has the image's first column, which has no neighbour on its left. In that case
  the first phantom ends a row of empty MCUs on top of the others.
- band: whole rows, one part, below a row of empty MCUs that ends with a phantom.
- intervals: whole rows of a file that has restart markers between rows. The markers are numbered again.

The pixels of the box are those of a full decode, because a margin of one chroma sample is kept on each side on which
the image continues (see `aioloader.jpeg.cut`); phantoms and empty MCUs affect no more than that margin. Pure.

Rows of a JPEG that a crop needs, for readers that fetch only these and the headers.

Rule: a part of a JPEG has its headers, and the bytes of some consecutive rows of MCUs right behind them. An entry of a
crop index says where these bytes are, and has the CRC-32 of all bytes before each row. A CRC can be continued: begun
with that of the bytes before the first row, that of the rows must end with that of the bytes before the row behind
them. The last bytes of a row are also the first ones of the next, so the entry has these itself. Pure.
"""

from __future__ import annotations

import functools
import struct
import zlib
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeAlias

from aioloader.foundation.native import native
from aioloader.jpeg.crop_entry import (
    CATEGORIES,
    CODES,
    EDGE_NBYTES,
    HEAD,
    LONGEST_CODE,
    TABLES_AT,
    CropEntryError,
    EntryHead,
    check_intact,
)
from aioloader.jpeg.cut import Cut
from aioloader.jpeg.frame import DRI, EOI, RST0

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.jpeg.frame import Frame


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


_POINT: Final = struct.Struct("<Q")
_RESTARTS: Final = [bytes((0xFF, RST0 + number)) for number in range(8)]
_END: Final = bytes((0xFF, EOI))
_NO_RESTARTS: Final = bytes((0xFF, DRI, 0, 4, 0, 0))
_STUFFED: Final = b"\xff\0"
_LOW_BITS: Final = [255 >> number for number in range(8)]
_DC_DIFFERENCES: Final = 1 << 11  # of each sign
_HIGHEST: Final = [(1 << category) - 1 for category in range(CATEGORIES)]
_MOST_IN_A_BYTE = 4  # MCUs
_LEAST_SCALED = 8  # pixels
# Cost of a row of a window besides its MCUs, in blocks that a decoder could decode meanwhile.
_ROW_COST = 16


# A number of bits, and the bits.
_Bits: TypeAlias = tuple[int, int]


class _Source(NamedTuple):
    """A JPEG and its entry; `scan_at` is the offset in the data at which the scan would begin if it were whole."""

    data: Any
    frame: Frame
    entry: Any
    head: EntryHead
    scan_at: int


class _Parts(NamedTuple):
    """Parts of a scan: each has `step` rows, and begins and ends at a point.

    Attributes:
        first, stop: first row of MCUs and the one behind the last.
        step: rows of a part.
        begin: column of points at which the parts begin.
        end: that at which they end; -1: they end where the next row begins.
        narrow: a part can begin and end in one byte, and then they cannot be joined.
    """

    first: int
    stop: int
    step: int
    begin: int
    end: int
    narrow: bool


class _Bounds(NamedTuple):
    """Points at which parts begin and end.

    Attributes:
        rows: bits at which the rows begin in which the parts do.
        begins, ends: the points, each after some bits of another one: that many bits each.
        begin_shift, end_shift: these numbers of bits.
        end_rows: bits at which the rows begin in which the parts end.
    """

    rows: list[int]
    begins: list[int]
    begin_shift: int
    end_rows: list[int]
    ends: list[int]
    end_shift: int


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
        A JPEG that contains the box; None if a decoder has to read all rows and columns, or nearly all, or if the
        scaled size of the JPEG would not determine the scale, as in `aioloader.jpeg.cut`.

    Raises:
        CropEntryError: the entry does not fit the frame.
    """
    head = EntryHead._make(HEAD.unpack_from(entry))
    interval = head.interval
    # Where rows may end in a restart marker, their ends are points, too.
    points = -(-frame.mcus_per_row // interval) if interval else 0
    if head.rows != frame.mcu_rows or not points or points + (head.restart_rows > 0) != head.points:
        raise CropEntryError("of other bytes")
    x, y, width, height = box
    margin = frame.y_margin * scale
    top = y - margin if y > margin else 0
    bottom = min(frame.height, y + height + margin)
    margin = frame.x_margin * scale
    left = x - margin if x > margin else 0
    right = min(frame.width, x + width + margin)
    first, stop = top // frame.mcu_height, -(-bottom // frame.mcu_height)
    begin, end = left // (frame.mcu_width * interval), -(-right // (frame.mcu_width * interval))
    blocks = (frame.mcu_width * frame.mcu_height >> 6) + head.components - 1
    columns = min(end * interval, frame.mcus_per_row) - begin * interval
    # Where chroma is interpolated, column 0 has no neighbour on its left; a phantom would be one.
    right_phantoms = margin > 0 and begin == 0
    # In blocks of MCUs: a window, and whole rows, which may need one more on top.
    window = ((columns + 1) * blocks + _ROW_COST) * (stop - first + (right_phantoms and first > 0))
    whole = frame.mcus_per_row * blocks * (stop - first + (first > 0 and not head.restart_rows))
    source = _Source(data, frame, entry, head, frame.scan_start - left_out)
    cut = None
    try:
        if window < whole and not (right_phantoms and end >= points):
            cut = _window(source, (begin, end, first, stop), (right, bottom), right_phantoms=right_phantoms)
        if cut is None and (first > 0 or bottom < frame.height):
            cut = (_intervals if head.restart_rows else _band)(source, (first, stop), bottom)
    except (struct.error, TypeError, ValueError, LookupError, ArithmeticError) as error:
        # Only an entry that was made up can be inconsistent: its CRC is right.
        raise CropEntryError("damaged") from error
    if cut is not None and scale > 1 and cut.height < _LEAST_SCALED and cut.width < _LEAST_SCALED:
        return None
    return cut


def _window(
    source: _Source, mcus: tuple[int, int, int, int], limits: tuple[int, int], *, right_phantoms: bool
) -> Cut | None:
    """Cut some MCUs of some rows.

    Args:
        source: the JPEG and its entry.
        mcus: first point and the one behind the last, first row of MCUs and the one behind the last.
        limits: columns and rows of pixels that are needed, exclusive.
        right_phantoms: the phantoms are the last column; not all columns are needed then.

    Returns:
        The cut; None if a row begins and ends in one byte.
    """
    data, frame, entry, head, scan_at = source
    begin, end, first, stop = mcus
    left = begin * head.interval
    columns = min(end * head.interval, frame.mcus_per_row) - left
    points = -(-frame.mcus_per_row // head.interval)
    # A row without a point at its end ends where the next one begins, if there is one. Blocks have two bits or more.
    ends = min(end, points) if end < points or head.restart_rows else -1
    parts = _Parts(first, stop, 1, begin, ends, columns < _MOST_IN_A_BYTE)
    grain, row_height = frame.mcu_width, frame.mcu_height
    height = limits[1] - first * row_height
    opening = 0
    if right_phantoms:
        if first:
            opening = columns
            height += row_height
        width, cut_left, top = columns * grain + 1, 0, (first - (first > 0)) * row_height
    else:
        width = grain + max(limits[0], (left + columns - 1) * grain + 1) - left * grain
        cut_left, top = (left - 1) * grain, first * row_height
    headers = _headers(source, _NO_RESTARTS if head.restart_rows else b"", width, height)
    continues = right_phantoms and not first
    copy = join_parts(headers, data, entry, scan_at, parts, opening, continues, right_phantoms)
    if copy is None:
        return None
    return Cut(data=copy, width=width, height=height, left=cut_left, top=top, stops_early=False)


def _band(source: _Source, rows: tuple[int, int], bottom: int) -> Cut:
    """Cut whole rows of a file without restart markers.

    Args:
        source: the JPEG and its entry.
        rows: first row of MCUs and the one behind the last.
        bottom: rows of pixels that are needed, exclusive.
    """
    data, frame, entry, _, scan_at = source
    first, stop = rows
    top = first - 1 if first else 0
    height = bottom - top * frame.mcu_height
    headers = _headers(source, b"", frame.width, height)
    parts = _Parts(first, stop, stop - first, 0, -1, False)
    opening = frame.mcus_per_row - 1 if first else 0
    copy = join_parts(headers, data, entry, scan_at, parts, opening, not first, False)
    return Cut(
        data=copy, width=frame.width, height=height, left=0, top=top * frame.mcu_height, stops_early=False
    )


def join_parts_in_python(
    headers: Any,
    data: Any,
    entry: Any,
    scan_at: int,
    parts: _Parts,
    opening: int,
    continues: bool,
    closing: bool,
) -> bytes | None:
    """Join parts of a scan by phantom MCUs, behind headers.

    Args:
        headers: bytes before the scan.
        data, entry, scan_at: as in `_Source`.
        parts: the parts.
        opening: number of empty MCUs before the first phantom.
        continues: the first part is the begin of the scan and needs no phantom.
        closing: whether an empty MCU is behind the last part.

    Returns:
        The bytes, and the marker behind the scan; None if a part begins and ends in one byte.

    Raises:
        ValueError, LookupError: the entry is inconsistent.
    """
    head = EntryHead._make(HEAD.unpack_from(entry))
    if not head.fits(len(entry)):
        raise ValueError("the entry is inconsistent")
    bounds = _bounds(entry, head, parts)
    if parts.narrow and _in_one_byte(bounds, (1 << head.nbits) - 1):
        return None
    # A negative offset would count from the end.
    if scan_at < 0 and (continues or (min(bounds.rows) >> 3) + scan_at < 0):
        raise ValueError("a row is outside of the data")
    first = _repeated(*_empty_mcu(entry, head), opening) if opening else (0, 0)
    pieces, carried = _joined(data, entry, head, scan_at, bounds, first, continues)
    # Every second piece is the file's. Rows do not overlap, so that a cut is never much larger.
    _check_total(pieces[1::2], data)
    return b"".join(
        (headers, *pieces, _last_bytes(carried, _empty_mcu(entry, head) if closing else (0, 0)), _END)
    )


join_parts = join_parts_in_python if native is None else native.join_parts


def _bounds(entry: Any, head: EntryHead, parts: _Parts) -> _Bounds:
    first, stop, step, begin, end, _ = parts
    at = head.starts_at + 4 * first
    rows: list[int] = memoryview(entry)[at : at + 4 * (stop - first + 1)].cast("I")[::step].tolist()
    begins, begin_shift = _column(entry, head, begin, (first, stop, step))
    if end >= 0:
        return _Bounds(rows, begins, begin_shift, rows, *_column(entry, head, end, (first, stop, step)))
    ends, end_shift = _column(entry, head, 0, (first + step, stop, step))
    ends.append(0)
    return _Bounds(rows, begins, begin_shift, rows[1:], ends, end_shift)


def _column(entry: Any, head: EntryHead, column: int, rows: tuple[int, int, int]) -> tuple[list[int], int]:
    """Return the points of a column in some rows, each after some bits of another one; and that number of bits."""
    first, stop, step = rows
    at, shift = divmod(column * head.point_nbits, 8)
    at += head.points_at + first * head.stride
    # A row is a multiple of 8 bytes.
    words = memoryview(entry)[at : at + (stop - first - 1) * head.stride + 8].cast("Q")
    return words[:: step * head.stride >> 3].tolist(), shift


def _in_one_byte(bounds: _Bounds, mask: int) -> bool:
    """Return whether a part begins and ends in the same byte."""
    rows, begins, begin_shift, end_rows, ends, end_shift = bounds
    starts = [row + (point >> begin_shift & mask) for row, point in zip(rows, begins, strict=False)]
    stops = [row + (point >> end_shift & mask) for row, point in zip(end_rows, ends, strict=False)]
    return any(start >> 3 >= stop >> 3 for start, stop in zip(starts, stops, strict=True))


def _joined(
    data: Any, entry: Any, head: EntryHead, scan_at: int, bounds: _Bounds, opening: _Bits, continues: bool
) -> tuple[list[Any], _Bits]:
    """Return a phantom and the bytes of each part, one after the other; and the bits behind the last whole byte."""
    luma, chroma, luma_nbits, chroma_nbits, pads, pad_nbits = _codes(entry, head)
    skipped_nbits, skipped_luma = _empty_luma(entry, head)
    rows, begins, begin_shift, end_rows, ends, end_shift = bounds
    begin_0, begin_1, begin_2 = _shifts(head, begin_shift)
    end_0, end_1, end_2 = _shifts(head, end_shift)
    mask = (1 << head.nbits) - 1
    mask_0, mask_1, mask_2 = (1 << head.nbits_0) - 1, (1 << head.nbits_1) - 1, (1 << head.nbits_2) - 1
    colour, chroma_end = head.components == 3, head.chroma_end
    low_bits, stored = _LOW_BITS, _stored()
    whole = memoryview(data)
    pieces: list[Any] = []
    carried_nbits, carried = opening
    # DC values behind the part before; at first 0, less what is left out of all values.
    behind_0, behind_1, behind_2 = -head.least_0, -head.least_1, -head.least_2
    points = [*zip(rows, begins, end_rows, ends, strict=False)]
    if continues:
        _, _, until, end = points.pop(0)
        behind_0, behind_1, behind_2 = end >> end_0 & mask_0, end >> end_1 & mask_1, end >> end_2 & mask_2
        until += end >> end_shift & mask
        carried_nbits = until & 7
        until = (until >> 3) + scan_at
        pieces += b"", whole[scan_at:until]
        carried = data[until] >> 8 - carried_nbits
    for at, begin, until, end in points:
        at += begin >> begin_shift & mask
        # Bits of the byte that are not the part's: the phantom ends before the others.
        skipped = at & 7
        at = (at >> 3) + scan_at
        byte = data[at]
        bits, nbits = byte & low_bits[skipped], 8 - skipped
        if colour:
            category, value = stored[(begin >> begin_2 & mask_2) - behind_2]
            behind_2 = end >> end_2 & mask_2
            bits += chroma[category] + (value << chroma_end) << nbits
            nbits += chroma_nbits[category]
            category, value = stored[(begin >> begin_1 & mask_1) - behind_1]
            behind_1 = end >> end_1 & mask_1
            bits += chroma[category] + (value << chroma_end) << nbits
            nbits += chroma_nbits[category]
        category, value = stored[(begin >> begin_0 & mask_0) - behind_0]
        behind_0 = end >> end_0 & mask_0
        length = luma_nbits[category]
        pad = -(length + nbits + carried_nbits) & 7
        bits += (luma[category] + value << pad_nbits[pad]) + pads[pad] << nbits
        nbits += length + pad_nbits[pad]
        bits += (carried << skipped_nbits) + skipped_luma << nbits
        phantom = bits.to_bytes(nbits + skipped_nbits + carried_nbits >> 3, "big")
        if 255 in phantom:
            phantom = phantom.replace(b"\xff", _STUFFED)
        at += 2 if byte == 255 else 1
        until += end >> end_shift & mask
        carried_nbits = until & 7
        until = (until >> 3) + scan_at
        carried = data[until] >> 8 - carried_nbits
        pieces += phantom, whole[at:until]
    return pieces, (carried_nbits, carried)


def _codes(entry: Any, head: EntryHead) -> tuple[Any, ...]:
    """Return an entry's codes of DC categories and numbers of bits, luma and chroma each; and paddings, likewise.

    A code that has no room for all values of its category is None.
    """
    codes = CODES.unpack_from(entry, HEAD.size)
    nbits, pads, pad_nbits = codes[24:48], codes[48:56], codes[56:]
    if max(nbits) > LONGEST_CODE or any(
        length > LONGEST_CODE or length - number & 7 or pad >> length
        for number, (pad, length) in enumerate(zip(pads, pad_nbits, strict=True))
    ):
        raise ValueError("codes are too long, or paddings do not pad")
    luma, chroma = (
        [
            None if code + value >> length else code
            for code, value, length in zip(some, values, lengths, strict=True)
        ]
        for some, values, lengths in (
            (codes[:12], _HIGHEST, nbits[:12]),
            (codes[12:24], [value << head.chroma_end for value in _HIGHEST], nbits[12:]),
        )
    )
    return luma, chroma, nbits[:12], nbits[12:], pads, pad_nbits


def _shifts(head: EntryHead, shift: int) -> tuple[int, int, int]:
    """Return the bits before the DC value of each component in a point that begins after `shift` bits."""
    luma = shift + head.nbits
    return luma, luma + head.nbits_0, luma + head.nbits_0 + head.nbits_1


@functools.cache
def _stored() -> list[Any]:
    """Return the category and the stored bits of each DC difference; None for those without a category."""
    positive = [(value.bit_length(), value) for value in range(_DC_DIFFERENCES)]
    # A negative value of n bits is stored as value + 2**n - 1. Its index counts from the end.
    negative = [(nbits, value ^ (1 << nbits) - 1) for nbits, value in positive[:0:-1]]
    return [*positive, *[None] * (2 * _DC_DIFFERENCES), *negative]


def _last_bytes(carried: _Bits, closing: _Bits) -> bytes:
    """Return the last bits of a scan as bytes; ones fill the last one."""
    nbits, bits = closing
    bits |= carried[1] << nbits
    nbits += carried[0]
    bits = (bits + 1 << (-nbits & 7)) - 1
    return bits.to_bytes(nbits + 7 >> 3, "big").replace(b"\xff", _STUFFED)


def _empty_luma(entry: Any, head: EntryHead) -> _Bits:
    """Return the luma blocks of an MCU that a phantom does not use, without coefficients."""
    at = TABLES_AT + head.tables_nbytes
    blocks = bytes(entry[at : at + head.empty_luma_nbytes]).replace(_STUFFED, b"\xff")
    return 8 * len(blocks), int.from_bytes(blocks, "big")


def _empty_mcu(entry: Any, head: EntryHead) -> _Bits:
    """Return an MCU without coefficients."""
    bits = int.from_bytes(entry[head.starts_at - head.empty_nbytes : head.starts_at], "big")
    return head.empty_nbits, bits >> 8 * head.empty_nbytes - head.empty_nbits


def _repeated(length: int, bits: int, times: int) -> _Bits:
    """Return some bits repeated; by doubling."""
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
    headers = _headers(source, b"", frame.width, height)
    copy = b"".join((headers, *pieces))
    return Cut(
        data=copy, width=frame.width, height=height, left=0, top=first * frame.mcu_height, stops_early=False
    )


def _check_total(pieces: Sequence[Any], data: Any) -> None:
    """Raise ValueError if pieces of a file overlap, before memory is allocated for them."""
    if sum(map(len, pieces)) > len(data):
        raise ValueError("pieces overlap")


def _headers(source: _Source, restarts: bytes, width: int, height: int) -> bytearray:
    """Return the headers with another size, and segments before the scan's: Huffman tables, and `restarts`."""
    data, frame, entry, head, _ = source
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
    tables = entry[TABLES_AT : TABLES_AT + head.tables_nbytes]
    headers = bytearray().join((*pieces, last[:scan], tables, restarts, last[scan:]))
    headers[size_at : size_at + 4] = bytes((height >> 8, height & 255, width >> 8, width & 255))
    return headers
