"""Target: entries of a crop index that are damaged, forged or of another image; damaged images under valid entries.

An input is one byte, which selects the options of the decode, one byte, which selects the parts of the entry that are
made right again (see `sealed`), the length of the JPEG (uint32, little endian), the JPEG, and the entry.
"""

from __future__ import annotations

import struct
import zlib
from itertools import accumulate
from pathlib import Path
from typing import Any

import numpy as np
from simplejpeg import decode_jpeg

from aioloader.errors import DecodeError
from aioloader.jpeg import read_frame
from aioloader.jpeg.crop_entry import CODES, HEAD, TABLES_AT, CropEntryError, check_entry, checksum
from aioloader.jpeg.crop_window import cut_by_entry
from tests.aioloader.jpeg.entries import in_c_and_python
from tests.fuzz.jpeg_changes import changed
from tests.fuzz.jpeg_oracle import DecodeOptions, Oracle, box_of, decode_whole, key_of
from tests.fuzz.target import CORPUS, ROOT, Draw, Finding, change, change_number, dictionary, pick

_LENGTH = struct.Struct("<BBI")
_CRC = struct.Struct("<I")
_BOXES = 3
SEALED, _BOUND = 1, 2
"""The CRC-32 of the entry is right; length and checksum of the JPEG are right too."""

# Fields of the head of an entry: (offset, bytes).
_SIZES = [struct.calcsize("<" + letter) for letter in "BBBBHHHHHIIIBBBBhhhHHBHBBBBI"]
_FIELDS = list(zip(accumulate(_SIZES, initial=0), _SIZES, strict=False))
_BOUND_AT = 14  # length and checksum
PIECES = dictionary("number")


def pairs() -> list[tuple[bytes, bytes]]:
    """Return valid JPEGs with their entries."""
    folders = CORPUS / "crops", Path(ROOT, "tests", "data", "crops")
    return [
        (path.with_suffix(".jpg").read_bytes(), path.read_bytes())
        for folder in folders
        for path in sorted(folder.glob("*.entry"))
    ]


class Entries:
    """Entries and JPEGs that do not belong together: the pixels are those without an entry, or nobody crashes."""

    def __init__(self) -> None:
        self._pairs = pairs()
        self._oracle = Oracle()

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        data, entry = pick(draw, self._pairs)
        seal, kind = 0, draw()
        if kind < 0.6:  # the entry is damaged, or forged
            entry, seal = damaged(entry, draw), 0 if kind < 0.2 else SEALED
        elif kind > 0.8:  # the entry is another image's
            entry = pick(draw, self._pairs)[1]
            seal = 0 if draw() < 0.3 else SEALED | _BOUND
            if draw() < 0.3:
                entry = damaged(entry, draw)
        if 0.6 <= kind < 0.86:  # the image is damaged
            data = changed(data, draw, lambda draw: pick(draw, self._pairs)[0])
        return _LENGTH.pack(int(draw() * 256), seal, len(data)) + data + entry

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        if len(data) < _LENGTH.size:
            return False
        number, seal, length = _LENGTH.unpack_from(data)
        stored = data[_LENGTH.size : _LENGTH.size + length]
        entry = sealed(data[_LENGTH.size + length :], stored, seal)
        key = key_of(data)
        options = DecodeOptions.of(number, key)
        genuine = (stored, entry) in self._pairs
        try:
            check_entry(entry, stored)
        except CropEntryError:
            if genuine:
                raise Finding("the entry of this JPEG is refused") from None
        else:
            if not genuine and not seal:
                raise Finding("an entry is accepted that is damaged, or not of this JPEG")
            if not genuine:
                self._forged(stored, options, key, entry)
                return True
        self._compare(stored, options, key, entry, genuine=genuine)
        return True

    def _compare(self, data: bytes, options: DecodeOptions, key: int, entry: bytes, *, genuine: bool) -> None:
        """Compare boxes with those of the full decode, and count the entries that are said to be bad."""
        whole = decode_whole(data, options)
        reader = self._oracle.reader(options)
        for number in range(_BOXES):
            bad = reader.bad_entries.total()
            lazy, _ = self._oracle.judge(data, options, key + number * 0x01234567, whole, entry)
            told = reader.bad_entries.total() - bad
            # An image that is not opened, or decoded whole, does not look at its entry.
            looks = hasattr(lazy, "_frame") and (options.scale > 1 or options.method < 6)
            if told > 1 or (genuine and told) or (told == 0 and looks and not genuine):
                raise Finding(f"{told} bad entries were counted")

    def _forged(self, data: bytes, options: DecodeOptions, key: int, entry: bytes) -> None:
        """Use an entry that is not the JPEG's: any pixels are right, if they are as many as requested."""
        frame = read_frame(data)
        if frame is None:
            self._oracle.judge(data, options, key, decode_whole(data, options), entry)
            return
        reader = self._oracle.reader(options)
        for number in range(_BOXES):
            mixed = key + number * 0x01234567
            _cut(data, frame, entry, box_of(mixed, frame.width, frame.height), options.scale)
            try:
                lazy = reader.open(data, entry=entry)
                use(lazy, box_of(mixed, lazy.width, lazy.height), options)
            except DecodeError:
                continue


def use(lazy: Any, box: tuple[int, int, int, int], options: DecodeOptions) -> None:
    """Decode a box; its pixels are as many as requested, whatever they are."""
    pixels = lazy.region(box) if options.method < 4 else lazy.frame(box)
    wanted = (box[3], box[2]) if options.method < 4 else (lazy.height, lazy.width)
    if options.scale > 1:
        lazy.region(box, options.scale)
        lazy.frame(box, options.scale)
    if pixels.shape != (*wanted, lazy.channels) or pixels.dtype != np.uint8:
        raise Finding(f"{pixels.dtype} {pixels.shape} for the box {box}")


def damaged(entry: bytes, draw: Draw) -> bytes:
    """Return an entry with one to three faults, most of them in its head."""
    result = bytearray(entry)
    for _ in range(pick(draw, (1, 1, 2, 3))):
        kind = draw()
        if kind < 0.45 and len(result) >= HEAD.size:
            change_number(result, *pick(draw, _FIELDS), draw)
        elif kind < 0.65 and len(result) > TABLES_AT:  # codes and their lengths
            values = (0, 1, 31, 32, 33, 255, int(draw() * 256))
            result[HEAD.size + int(draw() * CODES.size)] = pick(draw, values)
        elif kind < 0.9 and len(result) > TABLES_AT:  # tables, empty blocks, starts of rows, points
            result[TABLES_AT + int(draw() * (len(result) - TABLES_AT))] ^= 1 << int(draw() * 8)
        else:
            change(result, 0, draw, PIECES)
    return bytes(result)


def _cut(data: bytes, frame: Any, entry: bytes, box: tuple[int, int, int, int], scale: int) -> None:
    """Cut by a forged entry, and decode the cut."""
    try:
        piece = in_c_and_python(lambda: cut_by_entry(data, frame, entry, box, scale=scale))
    except CropEntryError:
        return
    if piece is None:
        return
    # Of codes with all lengths at their limits not more is added for a row, or for an MCU of an empty row.
    if len(piece.data) > len(data) + 520 * (frame.mcu_rows + frame.mcus_per_row):
        raise Finding(f"a cut has {len(piece.data)} bytes, its file {len(data)}")
    try:
        pixels = decode_jpeg(piece.data, "GRAY" if frame.components == 1 else "RGB", strict=True)
    except (ValueError, RuntimeError):
        return
    if pixels.shape[:2] != (piece.height, piece.width):
        raise Finding(f"a cut of {piece.width} x {piece.height} has the shape {pixels.shape}")


def sealed(entry: bytes, data: bytes, seal: int) -> bytes:
    """Make parts of an entry right again: its CRC-32, and before that length and checksum of the JPEG."""
    if not seal & SEALED or len(entry) < HEAD.size + _CRC.size:
        return entry
    result = bytearray(entry)
    if seal & _BOUND:
        struct.pack_into("<II", result, _BOUND_AT, len(data), checksum(data))
    _CRC.pack_into(result, len(result) - _CRC.size, zlib.crc32(result[: -_CRC.size]))
    return bytes(result)
