"""Making of the entries of a crop index: a pass over the Huffman symbols of a scan.

Rule: no symbol becomes a coefficient. The pass notes the bit at which an MCU begins and the DC values before it, which
is all that a decoder needs to begin there. Positions are bits from the start of the scan as stored: stuffed zeros and
restart markers count. The pass is in C where there is the compiled part, and in Python otherwise, which takes a hundred
times as long. Every read is bounded: positions are compared with the end of the data before each block, a block has at
most 64 coefficients of 31 bits each, and the data is followed by more zeros than that.
"""

from __future__ import annotations

import functools
import re
import struct
from itertools import count
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

from aioloader.foundation.native import native
from aioloader.jpeg.crop_entry import MOST_NBYTES, ScanPoints, encode_entry
from aioloader.jpeg.frame import EOI, RST0, read_frame
from aioloader.jpeg.huffman import AC, NotIndexableError, codes, read_scan_tables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import IntArray


REASONS: Final = {
    1: "its data has a code that no table has",
    2: "its data has a block of more than 64 coefficients",
    3: "its data has a DC value out of range",
    4: "its data ends before its last MCU",
    5: "its data goes on after its last MCU",
    6: "its restart markers are not those that its headers announce",
    7: "its data has unusual fill bytes",
    8: "its scan is not followed by the end of the image",
}
_BAD_CODE, _BAD_RUN, _BAD_DC, _TOO_SHORT, _TOO_LONG, _BAD_RESTART, _FILL_BYTES, _NO_END = REASONS

_PADDING = bytes(600)
_STUFFING = re.compile(rb"\xff+([^\xff])")
_TABLE = "<?16s256s"
_END_OF_BLOCK = 128  # coefficients


class _Failed(Exception):
    """Raised in the pass in Python.

    Attributes:
        problem: key of `REASONS`.
    """

    def __init__(self, problem: int) -> None:
        super().__init__(REASONS[problem])
        self.problem = problem


def build_entry(data: bytes | memoryview, *, interval: int | None = None) -> bytes:
    """Make the entry of a JPEG.

    Args:
        data: the encoded image.
        interval: MCUs between two points of entry in a row of MCUs, 1 to 255; None for the number with which the
            entry's size is nearest to 4.9 % of the image's bytes.

    Returns:
        The entry; see `aioloader.jpeg.crop_entry`.

    Raises:
        NotIndexableError: the image is not a baseline JPEG with one scan, or it is damaged, or so unusual or small that
            crops of it have to be decoded as without an index.
        ValueError: `interval` is not allowed.
    """
    return encode_entry(data, scan_points(data), interval=interval)


def scan_points(data: bytes | memoryview) -> ScanPoints:
    """Find the places at which the scan of a JPEG can be entered, one for each MCU.

    Args:
        data: the encoded image.

    Raises:
        NotIndexableError: as for `build_entry`.
    """
    if len(data) > MOST_NBYTES:  # before memory for it is allocated
        raise NotIndexableError("it has 512 MiB or more")
    frame = read_frame(data)
    if frame is None:
        raise NotIndexableError(
            "it is not a baseline JPEG with one scan that has all of one or three components"
        )
    scan = read_scan_tables(data, frame)
    columns, rows = frame.mcus_per_row, frame.mcu_rows
    if frame.restart_interval % columns:
        raise NotIndexableError("its restart markers are not at the ends of rows")
    # Two bits are the least that a block has. Checked before memory is allocated.
    if columns * rows * len(scan.blocks) * 2 > 8 * (len(data) - frame.scan_start):
        raise NotIndexableError("its data ends before its last MCU")
    for table in scan.tables.values():
        codes(table)  # raises for tables that libjpeg refuses
    numbers = {number: place for place, number in enumerate(scan.tables)}
    blocks = b"".join(bytes((block.component, numbers[block.dc], numbers[block.ac])) for block in scan.blocks)
    tables = b"".join(
        struct.pack(_TABLE, number < AC, table.counts, table.symbols) for number, table in scan.tables.items()
    )
    components = scan.blocks[-1].component + 1
    sizes = components, rows, columns, frame.restart_interval // columns
    positions = np.empty((rows, columns + 1), np.int64)
    predictors: IntArray = np.empty((components, rows, columns + 1), np.int16)
    stored = scan_mcus(data, frame.scan_start, blocks, tables, sizes, positions, predictors)
    if stored < 0:
        raise NotIndexableError(REASONS[-stored])
    points = ScanPoints(
        frame=frame, scan=scan, positions=positions, predictors=predictors, scan_nbytes=stored
    )
    if frame.restart_interval:
        _check_row_ends(data, points)
    return points


def scan_mcus_in_python(
    data: Any,
    start: int,
    blocks: bytes,
    tables: bytes,
    sizes: tuple[int, int, int, int],
    positions: IntArray,
    predictors: IntArray,
) -> int:
    """Go through all symbols of a scan and note where MCUs begin.

    Args:
        data: the JPEG; bytes, or a memoryview of bytes.
        start: offset of the scan.
        blocks: of each block of an MCU its component, and which of the tables are its DC and its AC table; 3 bytes.
        tables: Huffman tables: whether it is one for DC, counts, and symbols followed by zeros; 273 bytes each.
        sizes: components, rows of MCUs, MCUs of a row, rows between two restart markers or 0.
        positions: int64 (rows, columns + 1), is set to bits from the start of the scan; the last column to row ends.
        predictors: int16 (components, rows, columns + 1), is set to DC values.

    Returns:
        The length of the scan in bytes, or the negative of a key of `REASONS`.
    """
    try:
        scan = _without_stuffing(bytes(data[start:]))
        _pass_scan(scan, blocks, [*struct.iter_unpack(_TABLE, tables)], sizes, (positions, predictors))
    except _Failed as failure:
        return -failure.problem
    return scan.stored


scan_mcus = scan_mcus_in_python if native is None else native.scan_mcus


class _Scan(NamedTuple):
    """A scan without stuffed zeros and restart markers.

    Attributes:
        data: its data, and zeros behind.
        nbits: bits of the data.
        places: for each place where bytes were left out, the number of bytes before it.
        missing: the bytes left out before the first place, the second, ..., and in all.
        restarts: the places that have a restart marker: which of them, and the number of the marker.
        stored: its length in bytes as stored.
    """

    data: bytes
    nbits: int
    places: list[int]
    missing: list[int]
    restarts: list[tuple[int, int]]
    stored: int


def _without_stuffing(data: bytes) -> _Scan:
    """Remove stuffed zeros and restart markers.

    Args:
        data: bytes from the start of the scan on.
    """
    pieces: list[bytes] = []
    places: list[int] = []
    missing = [0]
    restarts: list[tuple[int, int]] = []
    copied = begin = 0
    for found in _STUFFING.finditer(data):
        at, after = found.span()
        kind = data[after - 1]
        kept = at + 1 if kind == 0 else at
        pieces.append(data[begin:kept])
        copied += kept - begin
        if kind == 0 and after > at + 2:
            raise _Failed(_FILL_BYTES)
        if RST0 <= kind < RST0 + 8:
            restarts.append((len(places), kind - RST0))
        elif kind == EOI:
            return _Scan(b"".join((*pieces, _PADDING)), 8 * copied, places, missing, restarts, at)
        elif kind:
            break
        places.append(copied)
        missing.append(missing[-1] + after - kept)
        begin = after
    raise _Failed(_NO_END)


@functools.lru_cache(maxsize=16)
def _lookup(is_dc: bool, counts: bytes, symbols: bytes) -> Sequence[int]:
    """Return for each word of 16 bits the symbol that it begins with; 0 where there is none.

    Returns:
        bits of the code | bits of the value << 8 | coefficients << 16.
    """
    entries: list[int] = []
    places = count()
    for length, number in enumerate(counts, 1):
        for _ in range(number):
            symbol = symbols[next(places)]
            size, run = symbol & 15, symbol >> 4
            if is_dc:
                entry = length | symbol << 8 | 1 << 16 if symbol <= 11 else 0
            elif size or run == 15:
                entry = length | size << 8 | run + 1 << 16
            else:
                entry = 0 if run else length | _END_OF_BLOCK << 16
            entries += [entry] * (1 << 16 - length)
    return entries + [0] * ((1 << 16) - len(entries))


def _pass_scan(
    scan: _Scan,
    blocks: bytes,
    tables: Sequence[tuple[bool, bytes, bytes]],
    sizes: tuple[int, int, int, int],
    result: tuple[IntArray, IntArray],
) -> None:
    """Pass all symbols; see `scan_mcus_in_python`."""
    components, rows, _, rows_of_interval = sizes
    lookups = [_lookup(*table) for table in tables]
    coding = [
        (component, lookups[dc], lookups[ac])
        for component, dc, ac in zip(blocks[::3], blocks[1::3], blocks[2::3], strict=True)
    ]
    positions, predictors = result
    restarts = [*scan.restarts, (len(scan.places), -1)]
    limits = [8 * place for place in scan.places] + [scan.nbits]
    if len(restarts) > 1 and not rows_of_interval:
        raise _Failed(_BAD_RESTART)
    at = interval = 0
    values = [0] * components
    for row in range(rows):
        place, number = restarts[interval]
        if rows_of_interval and row and row % rows_of_interval == 0:
            if number != interval & 7 or limits[place] - at >= 8:
                raise _Failed(_BAD_RESTART)
            at = limits[place]
            interval += 1
            place, _ = restarts[interval]
            values = [0] * components
        starts, predictors[:, row] = _pass_row(
            scan.data, (at, limits[place]), coding, values, positions.shape[1] - 1
        )
        at = starts[-1]
        # The end of a row stays before a restart marker that follows.
        passed = np.searchsorted(scan.places, np.array(starts) >> 3, "right")
        passed[-1] = min(passed[-1], place)
        positions[row] = starts + 8 * np.array(scan.missing)[passed]
    if restarts[interval][1] >= 0:
        raise _Failed(_BAD_RESTART)
    if scan.nbits - at >= 8:
        raise _Failed(_TOO_LONG)


def _pass_row(
    data: bytes,
    bounds: tuple[int, int],
    coding: Sequence[tuple[int, Sequence[int], Sequence[int]]],
    values: list[int],
    columns: int,
) -> tuple[list[int], Any]:
    """Pass the symbols of a row of MCUs.

    Args:
        data: as in `_Scan`.
        bounds: bits before the row, and before the end of the data.
        coding: of each block of an MCU its component, and look-up tables.
        values: the DC values before the row; set to those behind it.
        columns: MCUs of the row.

    Returns:
        Bits before each MCU and behind the last one, and the DC values of each component there.
    """
    at, limit = bounds
    starts, predictors = [at], [tuple(values)]
    for _ in range(columns):
        for component, dc, ac in coding:
            if at > limit:
                raise _Failed(_TOO_SHORT)
            entry = dc[int.from_bytes(data[at >> 3 : (at >> 3) + 3], "big") >> 8 - (at & 7) & 0xFFFF]
            if not entry:
                raise _Failed(_BAD_CODE)
            at += (entry & 255) + (entry >> 8 & 255)
            values[component] += _value(data, at, entry >> 8 & 255)
            if not -2048 < values[component] < 2048:
                raise _Failed(_BAD_DC)
            coefficients = 1
            while coefficients < 64:
                entry = ac[int.from_bytes(data[at >> 3 : (at >> 3) + 3], "big") >> 8 - (at & 7) & 0xFFFF]
                if not entry:
                    raise _Failed(_BAD_CODE)
                at += (entry & 255) + (entry >> 8 & 255)
                coefficients += entry >> 16
            if 64 < coefficients < _END_OF_BLOCK:
                raise _Failed(_BAD_RUN)
        starts.append(at)
        predictors.append(tuple(values))
    if at > limit:
        raise _Failed(_TOO_SHORT)
    return starts, np.array(predictors, np.int16).T


def _value(data: bytes, end: int, nbits: int) -> int:
    """Return the value whose bits end before a bit of the data."""
    if not nbits:
        return 0
    stop = end + 7 >> 3
    bits = int.from_bytes(data[max(0, stop - 3) : stop], "big") >> (-end & 7) & (1 << nbits) - 1
    return bits if bits >> nbits - 1 else bits + 1 - (1 << nbits)


def _check_row_ends(data: Any, points: ScanPoints) -> None:
    """Raise NotIndexableError if there are fill bytes before a restart marker; a cut ends where a marker begins."""
    interval = points.frame.restart_interval // points.frame.mcus_per_row
    last = np.arange(interval - 1, len(points.positions) - 1, interval)
    start = points.frame.scan_start
    for end, follows in zip(
        points.positions[last, -1].tolist(), points.positions[last + 1, 0].tolist(), strict=True
    ):
        marker = follows // 8 - 2 + start
        gap = marker - ((end + 7) // 8 + start)
        # The last byte of a row may be a stuffed one.
        if gap and not (gap == 1 and data[marker - 2] == 0xFF and data[marker - 1] == 0):
            raise NotIndexableError("it has fill bytes before restart markers")
