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
from tests.fuzz.jpeg_changes import changed
from tests.fuzz.jpeg_oracle import DecodeOptions, Oracle, box_of, decode_whole, key_of
from tests.fuzz.mutation import change, pick
from tests.fuzz.target import CORPUS, ROOT, Draw, Finding, corpus_of, most_memory

_LENGTH = struct.Struct("<BBI")
_CRC = struct.Struct("<I")
_BOXES = 3
_MOST_NBYTES = 1 << 26
SEALED, _BOUND = 1, 2
"""The CRC-32 of the entry is right; length and checksum of the JPEG are right too."""

# Fields of the head of an entry: (offset, bytes).
_FORMATS = "BBBBHHHHHIIIBBBBhhhHHBHBBBBI"
_FIELDS = list(
    zip(
        accumulate((struct.calcsize("<" + letter) for letter in _FORMATS), initial=0),
        (struct.calcsize("<" + letter) for letter in _FORMATS),
        strict=False,
    )
)
_BOUND_AT = 14  # length and checksum
PIECES = (bytes(1), bytes(4), bytes(8), b"\xff", b"\xff\xff\xff\xff", b"\xff\xd9", b"\1\0\0\0", b"\0\0\0\x80")


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

    past = frozenset(
        ("refused", "belongs to it", "forged, noticed", "forged, no cut", "forged, bad cut", "forged, cut")
    )

    def __init__(self) -> None:
        self._pairs = pairs()
        self._valid = {*self._pairs}
        self._kept = [path.read_bytes() for path in corpus_of("entries")]
        self._oracle = Oracle()

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        data, entry = self._pairs[int(draw() * len(self._pairs))]
        seal = 0
        kind = draw()
        if kind < 0.2:  # the entry is damaged
            entry = damaged(entry, draw)
        elif kind < 0.6:  # the entry is forged
            entry, seal = damaged(entry, draw), SEALED
        elif kind < 0.8:  # the image is damaged
            data = changed(data, draw, self._other)
        else:  # the entry is another image's
            entry = self._pairs[int(draw() * len(self._pairs))][1]
            seal = 0 if draw() < 0.3 else SEALED | _BOUND
            if draw() < 0.3:
                data = changed(data, draw, self._other)
            if draw() < 0.3:
                entry = damaged(entry, draw)
        made = _LENGTH.pack(int(draw() * 256), seal, len(data)) + data + entry
        if self._kept and draw() < 0.05:
            again = bytearray(pick(draw, self._kept))
            change(again, _LENGTH.size, draw, PIECES)
            made = bytes(again)
        return made

    def _other(self, draw: Draw) -> bytes:
        return self._pairs[int(draw() * len(self._pairs))][0]

    def check(self, data: bytes) -> str:
        """See `Target.check`."""
        if len(data) < _LENGTH.size:
            return "empty"
        number, seal, length = _LENGTH.unpack_from(data)
        stored = data[_LENGTH.size : _LENGTH.size + length]
        entry = sealed(data[_LENGTH.size + length :], stored, seal)
        key = key_of(data)
        options = DecodeOptions.of(number, key)
        genuine = (stored, entry) in self._valid
        before = most_memory()
        try:
            check_entry(entry, stored)
        except CropEntryError:
            if genuine:
                raise Finding("the entry of this JPEG is refused") from None
            self._compare(stored, options, key, entry)
            outcome = "refused"
        else:
            if genuine:
                self._compare(stored, options, key, entry)
                outcome = "belongs to it"
            elif not seal:
                raise Finding("an entry is accepted that is damaged, or not of this JPEG")
            else:
                outcome = self._forged(stored, options, key, entry)
        if (taken := most_memory() - before) > _MOST_NBYTES:
            raise Finding(f"{taken} bytes of memory were taken for it")
        return outcome

    def _compare(self, data: bytes, options: DecodeOptions, key: int, entry: bytes) -> None:
        """Compare boxes with those of the full decode, and count the entries that are said to be bad."""
        whole = decode_whole(data, options)
        genuine = (data, entry) in self._valid
        reader = self._oracle.reader(options)
        for number in range(_BOXES):
            bad = reader.bad_entries.total()
            _, lazy, _ = self._oracle.judge(data, options, key + number * 0x01234567, whole, entry)
            told = reader.bad_entries.total() - bad
            # An image that is not opened, or decoded whole, does not look at its entry.
            if told > 1 or (genuine and told) or (told == 0 and self._looks(lazy, options) and not genuine):
                raise Finding(f"{told} bad entries were counted")

    @staticmethod
    def _looks(lazy: Any, options: DecodeOptions) -> bool:
        return hasattr(lazy, "_frame") and (options.scale > 1 or options.method < 6)

    def _forged(self, data: bytes, options: DecodeOptions, key: int, entry: bytes) -> str:
        """Use an entry that is not the JPEG's: any pixels are right, if they are as many as requested."""
        frame = read_frame(data)
        if frame is None:
            self._oracle.judge(data, options, key, decode_whole(data, options), entry)
            return "forged, noticed"
        outcomes = set()
        reader = self._oracle.reader(options)
        for number in range(_BOXES):
            mixed = key + number * 0x01234567
            outcomes.add(_cut(data, frame, entry, box_of(mixed, frame.width, frame.height), options.scale))
            try:
                lazy = reader.open(data, entry=entry)
                box = box_of(mixed, lazy.width, lazy.height)
                if options.method < 4:
                    pixels = lazy.region(box)
                    wanted = (box[3], box[2], lazy.channels)
                else:
                    pixels = lazy.frame(box)
                    wanted = (lazy.height, lazy.width, lazy.channels)
                if options.scale > 1:
                    lazy.region(box, options.scale)
                    lazy.frame(box, options.scale)
            except DecodeError:
                continue
            if pixels.shape != wanted or pixels.dtype != np.uint8:
                raise Finding(f"{pixels.dtype} {pixels.shape} for the box {box}, not {wanted}")
        for outcome in ("forged, cut", "forged, bad cut", "forged, no cut"):
            if outcome in outcomes:
                return outcome
        return "forged, noticed"


def damaged(entry: bytes, draw: Draw) -> bytes:
    """Return an entry with one to three faults, most of them in its head."""
    result = bytearray(entry)
    for _ in range((1, 1, 2, 3)[int(draw() * 4)]):
        kind = draw()
        if kind < 0.45 and len(result) >= HEAD.size:
            at, nbytes = _FIELDS[int(draw() * len(_FIELDS))]
            old = int.from_bytes(result[at : at + nbytes], "little")
            most = (1 << 8 * nbytes) - 1
            choices = (0, 1, most, most >> 1, old + 1, old - 1, old * 2, int(draw() * most), old ^ 8, 255)
            new = choices[int(draw() * len(choices))]
            result[at : at + nbytes] = (min(max(new, 0), most)).to_bytes(nbytes, "little")
        elif kind < 0.65 and len(result) > TABLES_AT:  # codes and their lengths
            result[HEAD.size + int(draw() * CODES.size)] = (0, 1, 31, 32, 33, 255, int(draw() * 256))[
                int(draw() * 7)
            ]
        elif kind < 0.9 and len(result) > TABLES_AT:  # tables, empty blocks, starts of rows, points
            result[TABLES_AT + int(draw() * (len(result) - TABLES_AT))] ^= 1 << int(draw() * 8)
        else:
            change(result, 0, draw, PIECES)
    return bytes(result)


def _cut(data: bytes, frame: Any, entry: bytes, box: tuple[int, int, int, int], scale: int) -> str:
    """Cut by a forged entry, and decode the cut."""
    try:
        piece = cut_by_entry(data, frame, entry, box, scale=scale)
    except CropEntryError:
        return "forged, noticed"
    if piece is None:
        return "forged, no cut"
    # Of codes with all lengths at their limits not more is added for a row, or for an MCU of an empty row.
    if len(piece.data) > len(data) + 520 * (frame.mcu_rows + frame.mcus_per_row):
        raise Finding(f"a cut has {len(piece.data)} bytes, its file {len(data)}")
    try:
        pixels = decode_jpeg(piece.data, "GRAY" if frame.components == 1 else "RGB", strict=True)
    except (ValueError, RuntimeError):
        return "forged, bad cut"
    if pixels.shape[:2] != (piece.height, piece.width):
        raise Finding(f"a cut of {piece.width} x {piece.height} has the shape {pixels.shape}")
    return "forged, cut"


def sealed(entry: bytes, data: bytes, seal: int) -> bytes:
    """Make parts of an entry right again: its CRC-32, and before that length and checksum of the JPEG."""
    if not seal & SEALED or len(entry) < HEAD.size + _CRC.size:
        return entry
    result = bytearray(entry)
    if seal & _BOUND:
        struct.pack_into("<II", result, _BOUND_AT, len(data), checksum(data))
    _CRC.pack_into(result, len(result) - _CRC.size, zlib.crc32(result[: -_CRC.size]))
    return bytes(result)
