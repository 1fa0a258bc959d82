"""Making of the entries of a crop index. Needs numba (extra ``crops``), which reading and using them does not.

Compiled pass over the Huffman symbols of a scan, by numba; imported only where a crop index is made.

Rule: no symbol becomes a coefficient. The pass notes the bit at which an MCU begins and the DC values before it, which
is all that a decoder needs to begin there. Positions are bits from the start of the scan as stored: stuffed zeros and
restart markers count. Every read is bounded: positions are compared with the end of the data before each block, a block
has at most 64 coefficients of 32 bits each, and the data is followed by more zeros than that.
"""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aioloader.errors import MissingPackageError
from aioloader.jpeg.crop_entry import ScanPoints, encode_entry
from aioloader.jpeg.frame import EOI, read_frame
from aioloader.jpeg.huffman import HuffmanTable, NotIndexableError, codes, read_scan_tables

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.foundation.types import Array, IntArray


try:
    from numba import njit
except ImportError as error:
    raise MissingPackageError("numba", extra="crops") from error


LOOKUP_BITS: Final = 11
PADDING: Final = 600
"""Zeros that must follow the data, in bytes."""
NO_MARKER, FILL_IN_DATA = -1, -2

REASONS: Final = {
    1: "its data has a code that no table has",
    2: "its data has a block of more than 64 coefficients",
    3: "its data has a DC value out of range",
    4: "its data ends before its last MCU",
    5: "its data goes on after its last MCU",
    6: "its restart markers are not those that its headers announce",
}
_BAD_CODE, _BAD_RUN, _BAD_DC, _TOO_SHORT, _TOO_LONG, _BAD_RESTART = REASONS


def _compiled(function: Callable[..., Any]) -> Any:
    """Compile a function at its first call, and keep the code on disk where there is a place for it."""
    try:
        return njit(nogil=True, cache=True)(function)
    except RuntimeError:
        return njit(nogil=True)(function)


@_compiled
def fill_lookup(counts, symbols, is_dc, lookup):  # type: ignore[no-untyped-def]
    """Fill the look-up tables of a Huffman table.

    Args:
        counts, symbols: the table: int64 (16,) and int64 (256,).
        is_dc: whether it is a DC table.
        lookup: four arrays, which are set:

            - one, int32 (2048,): for the next 11 bits, one symbol: bits of its code | bits of its value << 8 |
              coefficients << 16; for a DC table the value's bits are the category. 0 where the code is longer, or there
              is none.
            - many, int32 (2048,): as many symbols of an AC table as fit: bits in all | coefficients before the last
              << 8 | coefficients << 16.
            - limits and offsets, int64 (17,): for codes of each length, their upper bound as 16 bits, and the
              difference between the place of a symbol and its code.
    """
    one, many, limits, offsets = lookup
    one[:] = 0
    code = 0
    place = 0
    for length in range(1, 17):
        offsets[length] = place - code
        for _ in range(counts[length - 1]):
            symbol = symbols[place]
            run = symbol >> 4
            size = symbol & 15
            if is_dc:
                entry = length | symbol << 8 | 1 << 16 if symbol <= 11 else 0
            elif size:
                entry = length | size << 8 | (run + 1) << 16
            elif run == 15:
                entry = length | 16 << 16
            elif run == 0:
                entry = length | 128 << 16
            else:
                entry = 0
            if length <= LOOKUP_BITS:
                first = code << (LOOKUP_BITS - length)
                for index in range(first, first + (1 << (LOOKUP_BITS - length))):
                    one[index] = entry
            code += 1
            place += 1
        limits[length] = code << (16 - length)
        code <<= 1
    if is_dc:
        return
    for word in range(1 << LOOKUP_BITS):
        used = 0
        before = 0
        coefficients = 0
        while used < LOOKUP_BITS and coefficients < 64:
            entry = one[(word << used) & ((1 << LOOKUP_BITS) - 1)]
            length = entry & 255
            total = used + length + ((entry >> 8) & 255)
            if entry == 0 or used + length > LOOKUP_BITS or total > 32:
                break
            before = coefficients
            coefficients += entry >> 16
            used = total
        many[word] = used | before << 8 | coefficients << 16


@_compiled
def remove_stuffing(data, start, candidates, out, left_out):  # type: ignore[no-untyped-def]
    """Copy the data of a scan without stuffed zeros and restart markers.

    Args:
        data: uint8 (nbytes,), the JPEG.
        start: offset of the scan.
        candidates: int64, offsets of all bytes 0xFF from `start` on, but the last byte of the data.
        out: uint8, at least as long as the rest of the data.
        left_out: two arrays, which are set: int64, as long as `candidates`: for each place where bytes were left out,
            the number of bytes copied before it; int64 (..., 2): the bytes left out so far, and the number of the
            restart marker, or -1 for a zero.

    Returns:
        (bytes copied, places, offset of the byte after 0xFF of the next other marker, or NO_MARKER or FILL_IN_DATA,
        length of the scan as stored).
    """
    places, marks = left_out
    nbytes = data.shape[0]
    at = start
    copied = 0
    count = 0
    missing = 0
    for found in candidates:
        if found < at:  # a fill byte, which the one before it has passed
            continue
        for _ in range(found - at):
            out[copied] = data[at]
            copied += 1
            at += 1
        after = at + 1
        while after < nbytes and data[after] == 0xFF:
            after += 1
        if after >= nbytes:
            break
        kind = data[after]
        if kind == 0:
            if after > at + 1:
                return copied, count, FILL_IN_DATA, at - start
            out[copied] = 0xFF
            copied += 1
            missing += 1
            marks[count, 1] = -1
        elif 0xD0 <= kind <= 0xD7:
            missing += after + 1 - at
            marks[count, 1] = kind - 0xD0
        else:
            return copied, count, after, at - start
        places[count] = copied
        marks[count, 0] = missing
        count += 1
        at = after + 1
    return copied, count, NO_MARKER, at - start


@_compiled
def _load(data, at):  # type: ignore[no-untyped-def]
    """Return 64 bits from a byte on."""
    # Written out: compilers make one instruction of it.
    return (
        np.uint64(data[at]) << np.uint64(56)
        | np.uint64(data[at + 1]) << np.uint64(48)
        | np.uint64(data[at + 2]) << np.uint64(40)
        | np.uint64(data[at + 3]) << np.uint64(32)
        | np.uint64(data[at + 4]) << np.uint64(24)
        | np.uint64(data[at + 5]) << np.uint64(16)
        | np.uint64(data[at + 6]) << np.uint64(8)
        | np.uint64(data[at + 7])
    )


@_compiled
def _long_code(word, symbols, limits, offsets):  # type: ignore[no-untyped-def]
    """Decode a symbol of any length; (0, 0) if there is none."""
    value = np.int64(word >> np.uint64(48))
    for length in range(1, 17):
        if value < limits[length]:
            return length, np.int64(symbols[(value >> (16 - length)) + offsets[length]])
    return 0, 0


@_compiled
def _next_marker(marks, count, at):  # type: ignore[no-untyped-def]
    """Return the place of the next restart marker, from `at` on; `count` if there is none."""
    while at < count and marks[at, 1] < 0:
        at += 1
    return at


@_compiled
def _value(word, length, size):  # type: ignore[no-untyped-def]
    """Return the value of `size` bits behind a code of `length` bits."""
    if size == 0:
        return np.int64(0)
    value = np.int64((word << np.uint64(length)) >> np.uint64(64 - size))
    return value if value >= (1 << (size - 1)) else value + 1 - (1 << size)


@_compiled
def _long_ac(word, symbols, limits, offsets):  # type: ignore[no-untyped-def]
    """Decode an AC symbol of any length: bits of its code and value, coefficients; (0, 0) if there is none."""
    length, symbol = _long_code(word, symbols, limits, offsets)
    if symbol & 15:
        return length + (symbol & 15), (symbol >> 4) + 1
    if symbol == 0xF0:
        return length, 16
    return (length, 128) if length and symbol == 0 else (0, 0)


@_compiled
def _pass_row(data, bounds, coding, dc, result):  # type: ignore[no-untyped-def]
    """Pass the symbols of a row of MCUs and note where each begins.

    Args:
        data, coding: as in `walk`.
        bounds: bits before the row, and before the end of the data.
        dc: int64 (components,), the DC values before the row; set to those behind it.
        result: the row of `walk`'s results.

    Returns:
        (bits before the next row, 0 or a key of `REASONS`).
    """
    at, limit = bounds
    block_tables, (one, many, symbols, limits, offsets) = coding
    positions, predictors = result
    for column in range(positions.shape[0] - 1):
        positions[column] = at
        for component in range(predictors.shape[0]):
            predictors[component, column] = dc[component]
        for block in range(block_tables.shape[0]):
            if at > limit:
                return at, _TOO_SHORT
            word = _load(data, at >> 3) << np.uint64(at & 7)
            valid = 64 - (at & 7)
            component, table = block_tables[block, 0], block_tables[block, 1]
            entry = np.int64(one[table, word >> np.uint64(64 - LOOKUP_BITS)])
            length, size = entry & 255, (entry >> 8) & 255
            if entry == 0:
                length, size = _long_code(word, symbols[table], limits[table], offsets[table])
                if length == 0 or size > 11:
                    return at, _BAD_CODE
            if size:
                value = dc[component] + _value(word, length, size)
                if value < -2047 or value > 2047:
                    return at, _BAD_DC
                dc[component] = value
            length += size
            table = block_tables[block, 2]
            coefficients = 1
            while True:
                word <<= np.uint64(length)
                valid -= length
                at += length
                if coefficients >= 64:
                    break
                if valid < 32:
                    word = _load(data, at >> 3) << np.uint64(at & 7)
                    valid = 64 - (at & 7)
                index = word >> np.uint64(64 - LOOKUP_BITS)
                entry = np.int64(many[table, index])
                # Symbols behind the 64th coefficient belong to the next block.
                if entry and coefficients + ((entry >> 8) & 255) < 64:
                    length = entry & 255
                    coefficients += entry >> 16
                    continue
                entry = np.int64(one[table, index])
                if entry:
                    length, passed = (entry & 255) + ((entry >> 8) & 255), entry >> 16
                else:
                    length, passed = _long_ac(word, symbols[table], limits[table], offsets[table])
                    if length == 0:
                        return at, _BAD_CODE
                coefficients += passed
            if 64 < coefficients < 128:
                return at, _BAD_RUN
    positions[-1] = at
    for component in range(predictors.shape[0]):
        predictors[component, -1] = dc[component]
    return at, _TOO_SHORT if at > limit else 0


@_compiled
def walk(scan, rows_of_interval, coding, left_out, result):  # type: ignore[no-untyped-def]
    """Go through all symbols of a scan and note where MCUs begin.

    Args:
        scan: the data without stuffing, uint8, followed by `PADDING` zeros; and its number of bits.
        rows_of_interval: rows of MCUs between two restart markers, or 0 without markers.
        coding: int64 (blocks, 3): component and numbers of the DC and AC look-up tables of each block of an MCU; and
            one, many, symbols, limits, offsets (see `fill_lookup`), stacked by table.
        left_out: what was left out (see `remove_stuffing`), and the number of places.
        result: int64 (rows, columns + 1), is set to bits from the start of the data, the last column to row ends; int16
            (components, rows, columns + 1), is set to the DC values.

    Returns:
        0, or a key of `REASONS`.
    """
    data, nbits = scan
    places, marks, count = left_out
    positions, predictors = result
    at = np.int64(0)
    dc = np.zeros(4, np.int64)
    restarts = 0
    mark = _next_marker(marks, count, 0)
    if mark < count and not rows_of_interval:
        return _BAD_RESTART
    limit = places[mark] * 8 if mark < count else nbits
    for row in range(positions.shape[0]):
        if rows_of_interval and row and row % rows_of_interval == 0:
            if mark >= count or marks[mark, 1] != restarts or limit - at >= 8:
                return _BAD_RESTART
            at = limit
            restarts = (restarts + 1) & 7
            dc[:] = 0
            mark = _next_marker(marks, count, mark + 1)
            limit = places[mark] * 8 if mark < count else nbits
        at, problem = _pass_row(data, (at, limit), coding, dc, (positions[row], predictors[:, row]))
        if problem:
            return problem
    if mark < count:
        return _BAD_RESTART
    if nbits - at >= 8:
        return _TOO_LONG
    return 0


@_compiled
def to_stored(positions, left_out):  # type: ignore[no-untyped-def]
    """Convert positions in data without stuffing to positions in the scan as stored, in place.

    The end of a row before a restart marker stays before the marker.
    """
    places, marks, count = left_out
    passed = 0
    for row in range(positions.shape[0]):
        for column in range(positions.shape[1]):
            byte = positions[row, column] >> 3
            is_end = column == positions.shape[1] - 1
            while (
                passed < count
                and places[passed] <= byte
                and not (is_end and marks[passed, 1] >= 0 and places[passed] == byte)
            ):
                passed += 1
            if passed:
                positions[row, column] += marks[passed - 1, 0] * 8


class _Scratch(threading.local):
    """Memory of each thread for the data of a scan.

    Attributes:
        buffer: uint8 (nbytes,), of the largest scan so far.
    """

    buffer: Array = np.empty(0, np.uint8)


_scratch = _Scratch()


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
        MissingPackageError: numba is not installed.
    """
    return encode_entry(data, scan_points(data), interval=interval)


def scan_points(data: bytes | memoryview) -> ScanPoints:
    """Find the places at which the scan of a JPEG can be entered, one for each MCU.

    Args:
        data: the encoded image.

    Raises:
        NotIndexableError: as for `build_entry`.
        MissingPackageError: numba is not installed.
    """
    from aioloader.jpeg import crop_scan as scan_walk

    frame = read_frame(data)
    if frame is None:
        raise NotIndexableError(
            "it is not a baseline JPEG with one scan that has all of one or three components"
        )
    scan = read_scan_tables(data, frame)
    columns, rows = frame.mcus_per_row, frame.mcu_rows
    if frame.restart_interval % columns:
        raise NotIndexableError("its restart markers are not at the ends of rows")
    nbytes = len(data) - frame.scan_start
    # Two bits are the least that a block has. Checked before memory is allocated.
    if columns * rows * len(scan.blocks) * 2 > 8 * nbytes:
        raise NotIndexableError("its data ends before its last MCU")
    text = np.frombuffer(data, np.uint8)
    candidates = np.flatnonzero(text[frame.scan_start : -1] == 0xFF) + frame.scan_start
    clean = _buffer(nbytes + scan_walk.PADDING)
    places, marks = np.empty(len(candidates), np.int64), np.empty((len(candidates), 2), np.int64)
    size, count, end, stored = scan_walk.remove_stuffing(
        text, frame.scan_start, candidates, clean, (places, marks)
    )
    if end == scan_walk.FILL_IN_DATA:
        raise NotIndexableError("its data has unusual fill bytes")
    if end == scan_walk.NO_MARKER or text[end] != EOI:
        raise NotIndexableError("its scan is not followed by the end of the image")
    clean[size : size + scan_walk.PADDING] = 0
    numbers = {number: place for place, number in enumerate(scan.tables)}
    blocks = [(block.component, numbers[block.dc], numbers[block.ac]) for block in scan.blocks]
    positions = np.empty((rows, columns + 1), np.int64)
    predictors: IntArray = np.empty((scan.blocks[-1].component + 1, rows, columns + 1), np.int16)
    left_out = places, marks, count
    problem = scan_walk.walk(
        (clean, size * 8),
        frame.restart_interval // columns,
        (np.array(blocks), _lookups(scan.tables, scan_walk)),
        left_out,
        (positions, predictors),
    )
    if problem:
        raise NotIndexableError(scan_walk.REASONS[problem])
    scan_walk.to_stored(positions, left_out)
    points = ScanPoints(
        frame=frame, scan=scan, positions=positions, predictors=predictors, scan_nbytes=stored
    )
    if frame.restart_interval:
        _check_row_ends(data, points)
    return points


def _buffer(nbytes: int) -> Array:
    """Return this thread's memory for the data of a scan."""
    if len(_scratch.buffer) < nbytes:
        _scratch.buffer = np.empty(nbytes, np.uint8)
    return _scratch.buffer


def _lookups(tables: dict[int, HuffmanTable], scan_walk: Any) -> tuple[Any, ...]:
    """Make the look-up tables of all Huffman tables."""
    count, size = len(tables), 1 << scan_walk.LOOKUP_BITS
    one = np.zeros((count, size), np.int32)
    many = np.zeros((count, size), np.int32)
    symbols = np.zeros((count, 256), np.int64)
    limits = np.zeros((count, 17), np.int64)
    offsets = np.zeros((count, 17), np.int64)
    for place, (number, table) in enumerate(tables.items()):
        codes(table)  # raises for tables that libjpeg refuses
        symbols[place, : len(table.symbols)] = np.frombuffer(table.symbols, np.uint8)
        counts = np.frombuffer(table.counts, np.uint8).astype(np.int64)
        lookup = one[place], many[place], limits[place], offsets[place]
        scan_walk.fill_lookup(counts, symbols[place], number < 16, lookup)
    return one, many, symbols, limits, offsets


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
