"""Target: parts of JPEGs, the headers and some rows, with an entry of a crop index that may not be theirs.

An input is one byte, which selects the options of the decode, one byte, which is 1 if the CRC-32 of the entry is made
right again, the first row of MCUs and the one behind the last (uint16, little endian), the length of the part (uint32),
the part, and the entry. A part is refused, or crops of it are those of a full decode of its JPEG.
"""

from __future__ import annotations

import struct
from typing import Any

import numpy as np

from aioloader.errors import IncompleteItemError
from aioloader.jpeg import read_frame
from aioloader.jpeg.crop_entry import EntryHead
from aioloader.jpeg.crop_window import cut_by_entry, needed_rows, read_head, row_bytes
from tests.fuzz.entries import PIECES, SEALED, damaged, pairs, sealed
from tests.fuzz.jpeg_changes import changed
from tests.fuzz.jpeg_oracle import (
    DecodeOptions,
    Oracle,
    box_of,
    compare_box,
    decode_box,
    decode_whole,
    key_of,
)
from tests.fuzz.mutation import change
from tests.fuzz.target import Draw, Finding, corpus_of, most_memory

_HEAD = struct.Struct("<BBHHI")
_BOXES = 3
_MOST_NBYTES = 1 << 26


def part_of(data: bytes, entry: bytes, rows: tuple[int, int]) -> bytes:
    """Return the headers of a JPEG, and the bytes that its entry names for some rows."""
    head = read_head(entry)
    begin, end = row_bytes(entry, head, rows)
    return data[: head.scan_start] + data[head.scan_start + begin : head.scan_start + end]


class Parts:
    """Parts that are damaged, too long or too short, of other rows or of another image."""

    past = frozenset(
        ("refused", "equal", "equal, or other rows", "other rows", "forged, noticed", "forged, used")
    )

    def __init__(self) -> None:
        self._pairs = pairs()
        self._images = {entry: data for data, entry in self._pairs}
        self._wholes: dict[tuple[bytes, int, str], Any] = {}
        self._kept = [path.read_bytes() for path in corpus_of("parts")]
        self._oracle = Oracle()

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        data, entry = self._pair(draw)
        head = read_head(entry)
        first = int(draw() * head.rows)
        stop = first + 1 + int(draw() * (head.rows - first))
        seal, kind = 0, draw()
        if kind < 0.15:  # the image was changed since
            data = changed(data, draw, lambda draw: self._pair(draw)[0])
        part = part_of(data, entry, (first, stop))
        if 0.15 <= kind < 0.3:
            edited = bytearray(part)
            if draw() < 0.7:
                change(edited, 0, draw, PIECES)
            else:  # at the end, where the next row begins
                edited[-1 - int(draw() * 4)] ^= 1 << int(draw() * 8)
            part = bytes(edited)
        elif kind < 0.4:  # too short, or too long
            part = part[: int(draw() * len(part))] if draw() < 0.5 else part + bytes((255, 217, 0))
        elif kind < 0.5:  # other rows
            first, stop = (int(draw() * (head.rows + 2)) for _ in range(2))
        elif kind < 0.6:
            entry = damaged(entry, draw)
        elif kind < 0.7:
            entry, seal = damaged(entry, draw), SEALED
        elif kind < 0.75:
            entry = self._pair(draw)[1]
        return _HEAD.pack(int(draw() * 256), seal, first, stop, len(part)) + part + entry

    def _pair(self, draw: Draw) -> tuple[bytes, bytes]:
        return self._pairs[int(draw() * len(self._pairs))]

    def check(self, data: bytes) -> str:
        """See `Target.check`."""
        if len(data) < _HEAD.size:
            return "empty"
        number, seal, *rows, length = _HEAD.unpack_from(data)
        first, stop = rows
        part = data[_HEAD.size : _HEAD.size + length]
        entry = sealed(data[_HEAD.size + length :], b"", seal & SEALED)
        key = key_of(data)
        options = DecodeOptions.of(number, key)
        whole = self._images.get(entry)
        right = whole is not None and first < stop <= read_head(entry).rows
        genuine = right and whole is not None and part == part_of(whole, entry, (first, stop))
        before = most_memory()
        reader = self._oracle.reader(options)
        try:
            lazy = reader.open_part(memoryview(part), entry=entry, rows=(first, stop))
        except IncompleteItemError:
            if genuine:
                raise Finding("the part of this JPEG is refused") from None
            return "refused"
        if whole is not None:
            if not genuine:
                raise Finding("a part is accepted that is not one of this JPEG")
            outcome = self._compare(whole, lazy, entry, rows=(first, stop), options=options, key=key)
        elif not seal & SEALED:
            raise Finding("an entry is accepted that is damaged")
        else:
            outcome = _use(lazy, options, key)
        if (taken := most_memory() - before) > _MOST_NBYTES:
            raise Finding(f"{taken} bytes of memory were taken for it")
        return outcome

    def _compare(
        self,
        data: bytes,
        lazy: Any,
        entry: bytes,
        *,
        rows: tuple[int, int],
        options: DecodeOptions,
        key: int,
    ) -> str:
        """Compare boxes with those of the full decode; outside of the rows they have to be refused."""
        whole = self._whole(data, options)
        head, frame = read_head(entry), read_frame(data)
        assert frame is not None
        outcomes = set()
        for number in range(_BOXES):
            box = _box(key + number * 0x01234567, head, rows)
            scale = options.scale if options.method < 4 or options.scale > 1 else 1
            first, stop = needed_rows(head, box, scale)
            expected = rows[0] <= first and stop <= rows[1] and options.method < 6
            expected = expected and cut_by_entry(data, frame, entry, box, scale=scale) is not None
            try:
                found = decode_box(lazy, box, options)
            except IncompleteItemError:
                if expected:
                    raise Finding(f"the box {box} is not decoded from rows {rows}") from None
                outcomes.add("other rows")
            else:
                compare_box(data, lazy, box, options, found=found, whole=whole)
                outcomes.add("equal")
        return ", or ".join(sorted(outcomes))

    def _whole(self, data: bytes, options: DecodeOptions) -> Any:
        key = data, options.flag, options.exif
        if key not in self._wholes:
            self._wholes[key] = decode_whole(data, options)
        return self._wholes[key]


def _box(key: int, head: EntryHead, rows: tuple[int, int]) -> tuple[int, int, int, int]:
    """Return a box that often needs no other rows than these."""
    if key & 7 == 0:
        return box_of(key, head.width, head.height)
    mcu_height = 8 * head.mcu_blocks_down
    top, bottom = rows[0] * mcu_height, min(head.height, rows[1] * mcu_height)
    if key & 0x18 and bottom - top > 2 * head.y_margin:
        top += head.y_margin if rows[0] else 0
        bottom -= head.y_margin if bottom < head.height else 0
    x, y, width, height = box_of(key, head.width, bottom - top)
    return x, top + y, width, height


def _use(lazy: Any, options: DecodeOptions, key: int) -> str:
    """Decode boxes by a forged entry: any pixels are right, if they are as many as requested."""
    outcome = "forged, noticed"
    for number in range(_BOXES):
        box = box_of(key + number * 0x01234567, lazy.width, lazy.height)
        try:
            pixels = lazy.region(box) if options.method < 4 else lazy.frame(box)
            if options.scale > 1:
                lazy.region(box, options.scale)
        except IncompleteItemError:
            continue
        outcome = "forged, used"
        wanted = (box[3], box[2]) if options.method < 4 else (lazy.height, lazy.width)
        if pixels.shape != (*wanted, lazy.channels) or pixels.dtype != np.uint8:
            raise Finding(f"{pixels.dtype} {pixels.shape} for the box {box}")
    return outcome
