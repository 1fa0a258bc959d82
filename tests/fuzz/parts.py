"""Target: parts of JPEGs, the headers and some rows, with an entry of a crop index that may not be theirs.

An input is one byte, which selects the options of the decode, one byte, which is 1 if the CRC-32 of the entry is made
right again, the first row of MCUs and the one behind the last (uint16, little endian), the length of the part (uint32),
the part, and the entry. A part is refused, or crops of it are those of a full decode of its JPEG.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from typing import Any

from aioloader.errors import IncompleteItemError
from aioloader.jpeg import read_frame
from aioloader.jpeg.crop_entry import EntryHead
from aioloader.jpeg.crop_window import cut_by_entry, needed_rows, read_head
from tests.aioloader.jpeg.entries import part_of
from tests.fuzz.entries import PIECES, SEALED, damaged, pairs, sealed, use
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
from tests.fuzz.target import Draw, Finding, change, pick

_HEAD = struct.Struct("<BBHHI")
_BOXES = 3
_whole = lru_cache(maxsize=None)(decode_whole)


class Parts:
    """Parts that are damaged, too long or too short, of other rows or of another image."""

    def __init__(self) -> None:
        self._pairs = pairs()
        self._images = {entry: data for data, entry in self._pairs}
        self._oracle = Oracle()

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        data, entry = pick(draw, self._pairs)
        head = read_head(entry)
        first = int(draw() * head.rows)
        stop = first + 1 + int(draw() * (head.rows - first))
        seal, kind = 0, draw()
        if kind < 0.15:  # the image was changed since
            data = changed(data, draw, lambda draw: pick(draw, self._pairs)[0])
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
        elif kind < 0.7:
            entry, seal = damaged(entry, draw), 0 if kind < 0.6 else SEALED
        elif kind < 0.75:
            entry = pick(draw, self._pairs)[1]
        return _HEAD.pack(int(draw() * 256), seal, first, stop, len(part)) + part + entry

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        if len(data) < _HEAD.size:
            return False
        number, seal, first, stop, length = _HEAD.unpack_from(data)
        part = data[_HEAD.size : _HEAD.size + length]
        entry = sealed(data[_HEAD.size + length :], b"", seal & SEALED)
        key = key_of(data)
        options = DecodeOptions.of(number, key)
        whole = self._images.get(entry)
        right = whole is not None and first < stop <= read_head(entry).rows
        genuine = right and whole is not None and part == part_of(whole, entry, (first, stop))
        try:
            lazy = self._oracle.reader(options).open_part(memoryview(part), entry=entry, rows=(first, stop))
        except IncompleteItemError:
            if genuine:
                raise Finding("the part of this JPEG is refused") from None
            return True
        if whole is not None:
            if not genuine:
                raise Finding("a part is accepted that is not one of this JPEG")
            _compare(whole, lazy, entry, rows=(first, stop), options=options, key=key)
        elif not seal & SEALED:
            raise Finding("an entry is accepted that is damaged")
        else:
            for place in range(_BOXES):
                try:
                    use(lazy, box_of(key + place * 0x01234567, lazy.width, lazy.height), options)
                except IncompleteItemError:
                    continue
        return True


def _compare(
    data: bytes, lazy: Any, entry: bytes, *, rows: tuple[int, int], options: DecodeOptions, key: int
) -> None:
    """Compare boxes with those of the full decode; outside of the rows they have to be refused."""
    whole = _whole(data, options._replace(scale=1, method=0))
    head, frame = read_head(entry), read_frame(data)
    assert frame is not None
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
        else:
            compare_box(data, lazy, box, options, found=found, whole=whole)


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
