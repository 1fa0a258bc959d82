"""Making of the entries of a crop index. Needs numba (extra ``crops``), which reading and using them does not."""

from __future__ import annotations

import threading
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.jpeg.crop_entry import ScanPoints, encode_entry
from aioloader.jpeg.frame import EOI, read_frame
from aioloader.jpeg.huffman import HuffmanTable, NotIndexableError, codes, read_scan_tables

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, IntArray


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
    from aioloader.jpeg import scan_walk

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
        (rows, columns, frame.restart_interval),
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
