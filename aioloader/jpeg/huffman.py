"""Huffman tables of a JPEG: read from its headers, made into codes, and given codes for more symbols.

Rule: the codes of a table are canonical: they follow from the number of codes of each length and from the order of the
symbols (ITU T.81, annex C). A table has at most 256 codes of 1 to 16 bits, and none of them consists of ones only.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, NamedTuple

from aioloader.errors import LoaderError
from aioloader.jpeg.frame import DHT, SOF0, SOF1, SOS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from aioloader.jpeg.frame import Frame

# Number of an AC table: that of its selector, and this bit; the first byte of a table in a DHT segment is the same.
AC = 16
EOB = 0
"""Symbol of an AC table: all coefficients that remain in the block are 0."""

_LONGEST = 16
_MOST_BLOCKS = 10


class NotIndexableError(LoaderError, ValueError):
    """Error raised for an image that the crop index cannot include; it is decoded as without an index.

    Attributes:
        reason: the reason, in words.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"this image cannot be in a crop index: {reason}")
        self.reason = reason


class HuffmanTable(NamedTuple):
    """A Huffman table as stored.

    Attributes:
        counts: number of codes of 1, 2, ... 16 bits; 16 bytes.
        symbols: the symbols in the order of their codes.
    """

    counts: bytes
    symbols: bytes


class Block(NamedTuple):
    """One of the 8 x 8 blocks of an MCU.

    Attributes:
        component: number of its component, from 0.
        dc, ac: numbers of its tables in `ScanTables.tables`.
    """

    component: int
    dc: int
    ac: int


class ScanTables(NamedTuple):
    """Tables of a scan.

    Attributes:
        tables: Huffman tables by number: the selector of a DC table, 16 more for an AC table.
        blocks: the blocks of an MCU in their order.
    """

    tables: dict[int, HuffmanTable]
    blocks: list[Block]


class Code(NamedTuple):
    """Some bits.

    Attributes:
        length: number of bits.
        bits: the bits, as an integer.
    """

    length: int
    bits: int


def read_scan_tables(data: Any, frame: Frame) -> ScanTables:
    """Read the Huffman tables and the blocks of a scan from the headers.

    Args:
        data: the JPEG; bytes, or a memoryview of bytes.
        frame: its frame.

    Raises:
        NotIndexableError: a table is damaged or missing, or the scan's parameters are unusual.
    """
    tables: dict[int, HuffmanTable] = {}
    ids: list[int] = []
    samplings: list[int] = []
    selectors: list[int] = []
    place = 2
    while place < frame.scan_start:
        marker = data[place + 1]
        if marker == 0xFF:  # a fill byte
            place += 1
            continue
        body, end = place + 4, place + 2 + (data[place + 2] << 8 | data[place + 3])
        if marker == DHT:
            tables |= _tables(bytes(data[body:end]))
        elif marker in (SOF0, SOF1):
            ids = [data[body + 6 + 3 * number] for number in range(data[body + 5])]
            samplings = [data[body + 7 + 3 * number] for number in range(data[body + 5])]
        elif marker == SOS:
            count = data[body]
            if ids != [data[body + 1 + 2 * number] for number in range(count)] or len({*ids}) < count:
                raise NotIndexableError("the components of its scan are in an unusual order")
            if bytes(data[end - 3 : end]) != b"\x00\x3f\x00":
                raise NotIndexableError("its scan announces a spectral selection")
            selectors = [data[body + 2 + 2 * number] for number in range(count)]
        place = end
    blocks = []
    for component, (sampling, selector) in enumerate(zip(samplings, selectors, strict=True)):
        block = Block(component, selector >> 4, AC | selector & 15)
        if block.dc not in tables or block.ac not in tables:
            raise NotIndexableError("it lacks a Huffman table")
        blocks += [block] * (1 if len(selectors) == 1 else (sampling >> 4) * (sampling & 15))
    if len(blocks) > _MOST_BLOCKS:
        raise NotIndexableError(f"its MCUs have more than {_MOST_BLOCKS} blocks")
    return ScanTables(tables, blocks)


def _tables(body: bytes) -> dict[int, HuffmanTable]:
    """Return the tables of a DHT segment by number."""
    tables = {}
    place = 0
    while place < len(body):
        counts = body[place + 1 : place + 17]
        stop = place + 17 + sum(counts)
        # Selectors of tables are 0 to 3; bit 4 says that it is an AC table.
        if stop > len(body) or len(counts) < 16 or body[place] & 0xEF > 3 or sum(counts) > 256:
            raise NotIndexableError("a segment with Huffman tables is damaged")
        tables[body[place]] = HuffmanTable(counts, body[place + 17 : stop])
        place = stop
    return tables


@lru_cache(maxsize=64)
def codes(table: HuffmanTable) -> Mapping[int, Code]:
    """Return the code of each symbol; the first one if a symbol has several.

    Raises:
        NotIndexableError: the table has too many codes, or a code of ones only; libjpeg refuses it too.
    """
    lengths: list[Code] = []
    code = 0
    for length, count in enumerate(table.counts, 1):
        if count:
            lengths += [Code(length, bits) for bits in range(code, code + count)]
            code += count
            if code >= 1 << length:
                raise NotIndexableError("a Huffman table has too many codes")
        code <<= 1
    # The first of several codes of a symbol is set last.
    return dict(zip(reversed(table.symbols), reversed(lengths), strict=True))


def extended(table: HuffmanTable, wanted: Iterable[int]) -> HuffmanTable:
    """Return a table with more symbols, behind all its codes, so that no code of the table changes.

    The code of ones only, which no table uses, is made longer where there is no other room.

    Args:
        table: the table.
        wanted: symbols that the result must have; those that the table has are skipped.

    Raises:
        NotIndexableError: a code would have more than 16 bits.
    """
    missing = [symbol for symbol in wanted if symbol not in table.symbols]
    if not missing:
        return table
    counts = list(table.counts)
    length = max((number for number, count in enumerate(counts, 1) if count), default=1)
    code = 0
    for count in counts[:length]:
        code = (code << 1) + count
    for _ in missing:
        while code >= (1 << length) - 1:
            code <<= 1
            length += 1
        if length > _LONGEST:
            raise NotIndexableError("a Huffman table has no room for another code")
        counts[length - 1] += 1
        code += 1
    return HuffmanTable(bytes(counts), table.symbols + bytes(missing))


@lru_cache(maxsize=64)
def paddings(table: HuffmanTable) -> Sequence[Code]:
    """Return, for each number of bits modulo 8, the shortest AC codes of a block with that number of bits.

    The codes are small coefficients and the end of the block. A block of them is followed by data that begins at any
    bit of a byte.

    Args:
        table: an AC table.

    Raises:
        NotIndexableError: the table has no end of block, or its codes do not give every number of bits.
    """
    ac = codes(table)
    if EOB not in ac:
        raise NotIndexableError("an AC table has no code for the end of a block")
    # For each number of bits modulo 8, the shortest coefficient: (bits of its code and value, zeros before it, code).
    # Its value bits are 0, which is a negative number.
    steps: dict[int, tuple[int, int, int]] = {}
    for symbol, (length, bits) in ac.items():
        size = symbol & 15
        if 0 < size <= 10:
            length += size
            known = steps.get(length & 7)
            if known is None or (length, symbol >> 4) < known[:2]:
                steps[length & 7] = length, symbol >> 4, bits << size
    end = ac[EOB]
    # Shortest paths from residue to residue: (bits, coefficients, codes).
    found: dict[int, Code] = {}
    reached = {0: (0, 0, 0)}
    settled = set()
    while reached:
        residue = min(reached, key=reached.__getitem__)
        length, used, value = reached.pop(residue)
        settled.add(residue)
        found[(length + end.length) % 8] = Code(length + end.length, value << end.length | end.bits)
        for more, run, bits in steps.values():
            total = length + more
            residue = total % 8
            # 63 AC coefficients in a block; 32 bits keep the integers of the loader small.
            if residue not in settled and used + run + 1 <= 62 and total + end.length <= 32:
                path = total, used + run + 1, value << more | bits
                reached[residue] = min(path, reached.get(residue, path))
    if len(found) < 8:
        raise NotIndexableError("an AC table has too few codes to align data with them")
    return [found[number] for number in range(8)]


def joined(parts: Iterable[Code]) -> Code:
    """Return bits that follow each other as one."""
    length = bits = 0
    for part in parts:
        length += part.length
        bits = bits << part.length | part.bits
    return Code(length, bits)
