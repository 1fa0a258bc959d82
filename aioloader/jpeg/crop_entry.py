"""Entries of a crop index: for one JPEG, the places at which its scan can be entered.

Rule: an entry has the bit at which each row of MCUs begins, and, for every few MCUs of a row, the bit at which the MCU
begins and the DC values before it; besides that, the codes that a cut needs to set these DC values and to bring the
data to the right bit of a byte. It has a CRC-32 of itself, and length and checksum of the JPEG, so that it is used only
with exactly the bytes that it was made from. For readers that have only some rows it has the CRC-32 of all bytes before
each row (see `aioloader.jpeg.crop_window`). Layout: docs/format.md. Pure.
"""

from __future__ import annotations

import struct
import zlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from aioloader.foundation.checksum import checksum
from aioloader.jpeg.frame import jpeg_orientation
from aioloader.jpeg.huffman import (
    EOB,
    Block,
    Code,
    HuffmanTable,
    NotIndexableError,
    codes,
    extended,
    joined,
    paddings,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioloader.foundation.types import Array, IntArray
    from aioloader.jpeg.frame import Frame
    from aioloader.jpeg.huffman import ScanTables

VERSION: Final = 4
HEAD: Final = struct.Struct("<BBBB HHHHH III BBBB hhh HHBHB BBB I")
"""version, MCUs between two points, components, bits of the end of a chroma block; width, height, rows of MCUs, points
of a row, rows of MCUs between two restart markers; length and checksum of the JPEG, length of its scan; bits of a
point's position and of its 3 DC values; least DC values; bytes of a row of points, of the DHT segment, of the empty
luma blocks; bits of an empty MCU; its bytes; blocks of luma in an MCU down, `Frame.y_margin`, orientation; offset of
the scan."""
CODES: Final = struct.Struct("<12I12I12B12B8I8B")
"""By DC category: luma's code with room for the value, chroma's with the end of its block; bits of each with the value.
By number of bits modulo 8: codes that end a luma block; their number of bits."""
CATEGORIES: Final = 12
"""Number of the categories of DC values: values have up to 11 bits."""
TABLES_AT: Final = HEAD.size + CODES.size
LONGEST_CODE: Final = 32
"""Most bits of such a code, and of a padding."""
_MOST_DC = 1 << CATEGORIES - 1
_CRC: Final = struct.Struct("<I")
EDGE_NBYTES: Final = 2
"""The data of a row ends in the first byte of the next row, or, if that is 0xFF, with the stuffed zero behind it."""
ROW_NBYTES: Final = 4 + _CRC.size + EDGE_NBYTES
"""Bytes of an entry for the start of each row, and for the end of the last one, besides the points."""
# A point is read as 64 bits from the byte in which it begins: it has at most 57 bits, and 8 bytes behind the last one.
# Rows of points are multiples of 8 bytes, so that the points of a column are every n-th 64-bit word.
_WIDEST = 57
_SPARE = 8
# An entry's share of the bytes of its JPEG.
_USUAL_SHARE = 0.049
# Limits of the layout: the interval has 8 bits, and the starts of rows 32 bits, in which they are counted in bits.
_MOST_INTERVAL = (1 << 8) - 1
MOST_NBYTES = (1 << 29) - 1


class CropEntryError(ValueError):
    """Error raised for an entry that is damaged, or not this JPEG's.

    Attributes:
        reason: "damaged", "of another version" or "of other bytes".
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the entry of the crop index is {reason}")
        self.reason = reason


class EntryHead(NamedTuple):
    """Head of an entry, `HEAD`, and where its parts begin."""

    version: int
    interval: int
    components: int
    chroma_end: int
    width: int
    height: int
    rows: int
    points: int
    restart_rows: int
    jpeg_nbytes: int
    checksum: int
    scan_nbytes: int
    nbits: int
    nbits_0: int
    nbits_1: int
    nbits_2: int
    least_0: int
    least_1: int
    least_2: int
    stride: int
    tables_nbytes: int
    empty_luma_nbytes: int
    empty_nbits: int
    empty_nbytes: int
    mcu_blocks_down: int
    y_margin: int
    orientation: int
    scan_start: int

    @property
    def point_nbits(self) -> int:
        """Return the bits of a point."""
        return self.nbits + self.nbits_0 + self.nbits_1 + self.nbits_2

    @property
    def starts_at(self) -> int:
        """Return the offset of the rows' starts."""
        return TABLES_AT + self.tables_nbytes + self.empty_luma_nbytes + self.empty_nbytes

    @property
    def points_at(self) -> int:
        """Return the offset of the points."""
        return self.starts_at + ROW_NBYTES * (self.rows + 1)

    @property
    def crcs_at(self) -> int:
        """Return the offset of the CRCs of the bytes before each row."""
        return self.starts_at + 4 * (self.rows + 1)

    @property
    def edges_at(self) -> int:
        """Return the offset of the first bytes of each row."""
        return self.starts_at + 8 * (self.rows + 1)

    def fits(self, nbytes: int) -> bool:
        """Return whether points fit into rows, rows into an entry of that length, and DC values into 12 bits."""
        stride, point_nbits = self.stride, self.point_nbits
        return (
            stride > 0
            and stride % 8 == 0
            and point_nbits <= _WIDEST
            and self.points * point_nbits <= 8 * stride
            and self.points_at + self.rows * stride + _SPARE + _CRC.size <= nbytes
            and max(self.nbits_0, self.nbits_1, self.nbits_2) <= CATEGORIES
            and min(self.least_0, self.least_1, self.least_2) >= -_MOST_DC
            and max(self.least_0, self.least_1, self.least_2) < _MOST_DC
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class ScanPoints:
    """Places at which the scan of a JPEG can be entered.

    Attributes:
        frame: its frame.
        scan: its tables.
        positions: int64 (rows of MCUs, MCUs in a row + 1), bits from the start of the scan; the last column has the
            ends of the rows, before a restart marker that follows.
        predictors: int16 (components, rows of MCUs, MCUs in a row + 1), the DC values before each MCU; the last column
            has those behind the last MCU.
        scan_nbytes: length of the scan.
    """

    frame: Frame
    scan: ScanTables
    positions: IntArray
    predictors: IntArray
    scan_nbytes: int


def check_entry(entry: Any, data: Any) -> None:
    """Check that an entry is intact and was made from exactly these bytes.

    Args:
        entry: bytes, or a memoryview of bytes.
        data: the JPEG, likewise.

    Raises:
        CropEntryError: it is not.
    """
    check_intact(entry)
    head = HEAD.unpack_from(entry)
    if head[9] != len(data) or head[10] != checksum(data):
        raise CropEntryError("of other bytes")


def check_intact(entry: Any) -> None:
    """Check that an entry is intact.

    Args:
        entry: bytes, or a memoryview of bytes.

    Raises:
        CropEntryError: it is not.
    """
    size = len(entry) - _CRC.size
    if size < TABLES_AT or zlib.crc32(entry[:size]) != _CRC.unpack_from(entry, size)[0]:
        raise CropEntryError("damaged")
    if entry[0] != VERSION:
        raise CropEntryError("of another version")


def encode_entry(data: Any, points: ScanPoints, *, interval: int | None = None) -> bytes:
    """Make the entry of a JPEG.

    Args:
        data: the JPEG; bytes, or a memoryview of bytes.
        points: its points.
        interval: MCUs between two points, 1 to 255; None for the number with which the entry's size is nearest to
            4.9 % of the JPEG's bytes.

    Raises:
        NotIndexableError: the JPEG's codes are too unusual, or it is so small that an index does not pay.
        ValueError: `interval` is not allowed.
    """
    if interval is not None and not 1 <= interval <= _MOST_INTERVAL:
        raise ValueError(f"interval must be 1 to {_MOST_INTERVAL}, got {interval!r}")
    frame, scan = points.frame, points.scan
    components = scan.blocks[-1].component + 1
    tables, literal = _tables(points)
    plan = _CodePlan.of(scan, tables)
    fields = [points.positions - points.positions[:, :1], *points.predictors]
    # The end of a row is a point only where the next row does not continue it.
    ends = frame.restart_interval > 0
    fixed = (
        TABLES_AT + len(literal) + len(plan.empty_luma) + len(plan.empty) + ROW_NBYTES + _SPARE + _CRC.size
    )
    if interval is None:
        bits = sum(_width(field) for field in fields)
        sizes = []
        for number in range(1, min(frame.mcus_per_row, _MOST_INTERVAL) + 1):
            per_row = ROW_NBYTES + _row_nbytes((-(-frame.mcus_per_row // number) + ends) * bits)
            sizes.append((fixed + frame.mcu_rows * per_row) / len(data))
            if sizes[-1] <= _USUAL_SHARE:
                break
        else:
            raise NotIndexableError("it is so small that an index would not pay")
        interval = min(range(1, len(sizes) + 1), key=lambda number: abs(sizes[number - 1] - _USUAL_SHARE))
    columns = [*range(0, frame.mcus_per_row, interval), *([frame.mcus_per_row] if ends else ())]
    fields = [field[:, columns] for field in fields]
    least = [int(field.min()) for field in fields]
    widths = [_width(field) for field in fields]
    if sum(widths) > _WIDEST:
        raise NotIndexableError("its points need too many bits")
    absent = [0] * (4 - len(fields))
    starts = np.append(points.positions[:, 0], points.scan_nbytes * 8).astype("<u4")
    crcs, edges = _row_checks(data, frame.scan_start, (starts >> 3).tolist())
    rows = _rows(fields, least, widths)
    head = HEAD.pack(
        *(VERSION, interval, components, plan.chroma_end),
        *(frame.width, frame.height, frame.mcu_rows, fields[0].shape[1]),
        frame.restart_interval // frame.mcus_per_row,
        *(len(data), checksum(data), points.scan_nbytes),
        *(*widths, *absent, *least[1:], *absent),
        *(rows.shape[1], len(literal), len(plan.empty_luma), plan.empty_nbits, len(plan.empty)),
        *(frame.mcu_height >> 3, frame.y_margin, jpeg_orientation(data, frame), frame.scan_start),
    )
    codes_of_cuts = (plan.packed, literal, plan.empty_luma, plan.empty)
    body = b"".join((head, *codes_of_cuts, starts.tobytes(), crcs, edges, rows.tobytes(), bytes(_SPARE)))
    return body + _CRC.pack(zlib.crc32(body))


def _row_checks(data: Any, scan_start: int, places: Sequence[int]) -> tuple[bytes, bytes]:
    """Return for each place in the scan the CRC-32 of all bytes before it, and the bytes that follow it."""
    whole = memoryview(data)
    crcs, edges = [], []
    crc = before = 0
    for place in places:
        at = scan_start + place
        crc = zlib.crc32(whole[before:at], crc)
        before = at
        crcs.append(_CRC.pack(crc))
        edges.append(bytes(whole[at : at + EDGE_NBYTES]))
    return b"".join(crcs), b"".join(edges)


def _width(field: IntArray) -> int:
    return (int(field.max()) - int(field.min())).bit_length()


def _row_nbytes(nbits: int) -> int:
    return -(-max(nbits, 1) // 64) * 8


def _tables(points: ScanPoints) -> tuple[dict[int, HuffmanTable], bytes]:
    """Return the tables with the codes that cuts need, and a DHT segment of those that had to be extended.

    An optimised table lacks the categories that its image does not have. A decoder replaces a table by a later one.
    """
    scan = points.scan
    tables = dict(scan.tables)
    # Differences between any two values, and from 0.
    highest = [max(int(values.max()), 0) - min(int(values.min()), 0) for values in points.predictors]
    if max(highest) >> CATEGORIES - 1:
        raise NotIndexableError("its DC values are too far apart")
    for block in {*scan.blocks}:
        categories = range(highest[block.component].bit_length() + 1)
        tables[block.dc] = extended(tables[block.dc], categories)
        tables[block.ac] = extended(tables[block.ac], (EOB,))
    luma = scan.blocks[0].ac
    # Flat images have hardly any AC codes; small coefficients are added until every alignment is possible.
    for count in range(4):
        candidate = extended(tables[luma], range(1, 1 + count))
        try:
            paddings(candidate)
        except NotIndexableError:
            if count == 3:
                raise
        else:
            tables[luma] = candidate
            break
    changed = {number: table for number, table in tables.items() if table != scan.tables[number]}
    body = b"".join(bytes((number,)) + table.counts + table.symbols for number, table in changed.items())
    return tables, struct.pack(">HH", 0xFFC4, len(body) + 2) + body if changed else b""


@dataclass(frozen=True, slots=True, kw_only=True)
class _CodePlan:
    """Codes of a cut: a phantom MCU before each row, which sets the DC values, or rows of empty MCUs.

    Attributes:
        packed: for `CODES`.
        empty_luma: the luma blocks of a phantom MCU before its last one, stuffed; whole bytes.
        empty, empty_nbits: an MCU without coefficients, filled up with zeros.
        chroma_end: bits of the code that ends a chroma block.
    """

    packed: bytes
    empty_luma: bytes
    empty: bytes
    empty_nbits: int
    chroma_end: int

    @classmethod
    def of(cls, scan: ScanTables, tables: dict[int, HuffmanTable]) -> _CodePlan:
        """Make the codes.

        Raises:
            NotIndexableError: the blocks of its MCUs are too unusual, or the codes too long.
        """
        coded = {number: codes(table) for number, table in tables.items()}
        luma = [block for block in scan.blocks if block.component == 0]
        chroma = [block for block in scan.blocks if block.component > 0]
        if len(chroma) not in (0, 2) or len({block[1:] for block in chroma}) > 1:
            raise NotIndexableError(
                "its MCUs have several chroma blocks, or chroma components with different tables"
            )
        pads = paddings(tables[luma[0].ac])
        first = coded[luma[0].dc]
        empty_luma = b""
        if len(luma) > 1:
            rest = joined(_zero(block, coded) for block in luma[2:])
            padding = pads[-(first[0].length + rest.length) % 8]
            length, bits = joined((first[0], padding, rest))
            empty_luma = bits.to_bytes(length // 8, "big").replace(b"\xff", b"\xff\0")
        luma_codes = [_with_value(first, category) for category in range(CATEGORIES)]
        chroma_codes = [Code(0, 0)] * CATEGORIES
        end = Code(0, 0)
        if chroma:
            end = coded[chroma[0].ac][EOB]
            chroma_codes = [
                joined((value, end)) if value.length else value
                for value in (_with_value(coded[chroma[0].dc], category) for category in range(CATEGORIES))
            ]
        if max(code.length for code in (*luma_codes, *chroma_codes)) > LONGEST_CODE:
            raise NotIndexableError("its codes are too long")
        empty = joined(_zero(block, coded) for block in scan.blocks)
        nbytes = -(-empty.length // 8)
        return cls(
            packed=_packed(luma_codes, chroma_codes, pads),
            empty_luma=empty_luma,
            empty=(empty.bits << 8 * nbytes - empty.length).to_bytes(nbytes, "big"),
            empty_nbits=empty.length,
            chroma_end=end.length,
        )


def _packed(luma: Sequence[Code], chroma: Sequence[Code], pads: Sequence[Code]) -> bytes:
    return CODES.pack(
        *(code.bits for code in luma),
        *(code.bits for code in chroma),
        *(code.length for code in luma),
        *(code.length for code in chroma),
        *(code.bits for code in pads),
        *(code.length for code in pads),
    )


def _zero(block: Block, coded: Mapping[int, Mapping[int, Code]]) -> Code:
    """Return a block that changes nothing: a DC difference of 0, and no other coefficient."""
    return joined((coded[block.dc][0], coded[block.ac][EOB]))


def _with_value(dc: Mapping[int, Code], category: int) -> Code:
    """Return a DC category's code with room for the value; no bits if the table lacks it."""
    if category not in dc:
        return Code(0, 0)
    length, bits = dc[category]
    return Code(length + category, bits << category)


def _rows(fields: Sequence[IntArray], least: Sequence[int], widths: Sequence[int]) -> Array:
    """Pack rows of points, without gaps between the points of a row.

    Returns:
        uint8 (rows, bytes), filled up with zeros.
    """
    rows, count = fields[0].shape
    nbits = sum(widths)
    values = np.zeros((rows, count), np.uint64)
    shift = 0
    for field, lowest, width in zip(fields, least, widths, strict=True):
        values |= (field.astype(np.int64) - lowest).astype(np.uint64) << np.uint64(shift)
        shift += width
    each = values.astype("<u8").view(np.uint8).reshape(rows, count, 8)
    bits = np.unpackbits(each, axis=2, count=nbits, bitorder="little").reshape(rows, count * nbits)
    packed = np.packbits(bits, axis=1, bitorder="little")
    table = np.zeros((rows, _row_nbytes(count * nbits)), np.uint8)
    table[:, : packed.shape[1]] = packed
    return table
