"""Target: the file of a crop index, finished or partial, and the crops by the entries that are found in it.

An input is one byte, which selects the options of the decode, one byte of `_ACTIONS`, and the file.
"""

from __future__ import annotations

import os
import pickle
import struct
import warnings
import zlib
from contextlib import suppress
from typing import Any

from aioloader.crop_index.layout import FOLDER, HEADER_NBYTES, RECORDS, read_frame
from aioloader.crop_index.lookup import open_folder_crops, open_record_crops
from aioloader.crop_index.reader import CropIndex
from aioloader.crop_index.writer import CropIndexWriter
from aioloader.errors import CropIndexError, CropIndexWarning
from recordio._partial_files import partial_path
from tests.fuzz.entries import pairs
from tests.fuzz.jpeg_oracle import DecodeOptions, Oracle, decode_whole, key_of
from tests.fuzz.target import Draw, Finding, change, change_number, dictionary, pick, scratch_folder

_SOURCE = 77
_STEP = 1000
"""Keys are multiples of this; the image with the key `_STEP * n` is the n-th."""

# Bits of `_ACTIONS`.
_SEALED = 1  # the CRCs of header and tables are right
_TRUNCATED = 2  # the file is truncated after it was opened
_PICKLED = 4  # the index is pickled after it was opened
_REPLACED = 8  # the file takes the place of a valid one that was opened
_PARTIAL = 16  # it is a partial file, which a writer continues

# Fields of the header: (offset, bytes).
_FIELDS = ((8, 4), (12, 4), (16, 8), (24, 8), (32, 8), (40, 8), (48, 4), (52, 4), (56, 4), (60, 4))
_REASONS = (
    b"",
    b"[]",
    b"{}",
    b"null",
    b"[1,2.5,null,{}]",
    b"[1e999, NaN]",
    b'["\\ud800"]',
    b"\xff\xfe",
    b'["',
    b"[" * 20_000,
    b"[" * 2000 + b"]" * 2000,
    b"[" + b"9" * 6000 + b"]",
)
PIECES = dictionary("number")


class CropIndexes:
    """Crop indexes with faults: they are refused, or lack entries, and no entry changes a pixel."""

    def __init__(self) -> None:
        self._folder = scratch_folder(self)
        self._path = str(self._folder / "a.crops")
        self._record_file = str(self._folder / "a.rec")
        self._pairs = pairs()
        self._oracle = Oracle()
        self._finished = [
            self._written(kind, count, refused)
            for kind, count, refused in ((RECORDS, 8, 3), (FOLDER, 5, 0), (RECORDS, 1, 1), (RECORDS, 0, 2))
        ]

    def _written(self, kind: int, count: int, refused: int) -> bytes:
        """Return the file of an index of the first images."""
        writer = CropIndexWriter(self._path, kind=kind, source=_SOURCE)
        for number, (data, entry) in enumerate(self._pairs[:count]):
            writer.put(_STEP * number, len(data), entry)
        for number in range(refused):
            writer.refuse(_STEP * number + 1, 10, f"reason {number % 2}")
        writer.finish()
        with open(self._path, "rb") as file:
            return file.read()

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        data = bytearray(self._finished[pick(draw, (0, 0, 0, 1, 1, 2, 3))])
        actions = _SEALED if draw() < 0.85 else 0
        for bit in (_TRUNCATED, _PICKLED, _REPLACED, _PARTIAL):
            if draw() < 0.15:
                actions |= bit
        for _ in range(pick(draw, (1, 1, 1, 2))):
            _changed(data, draw)
        return bytes((int(draw() * 256), actions)) + bytes(data)

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        if len(data) < 2:
            return False
        key = key_of(data)
        options, actions = DecodeOptions.of(data[0], key), data[1]
        stored = bytearray(data[2:])
        if actions & _SEALED:
            _seal(stored)
        if actions & _PARTIAL:
            return self._continue(bytes(stored), options, key)
        return self._open(bytes(stored), options, actions, key)

    def _open(self, stored: bytes, options: DecodeOptions, actions: int, key: int) -> bool:
        """Open a finished file."""
        index = None
        if actions & _REPLACED:
            self._put(self._finished[0])
            index = CropIndex(self._path)
            index.close()
        self._put(stored)
        usual = self._usual()
        try:
            checked = CropIndex(self._path)
            checked.refused()
        except CropIndexError:
            if usual is not None:
                raise Finding("an index is used that is refused by its name") from None
            if index is not None and any(index.find(_STEP * n) is not None for n in range(9)):
                raise Finding("an entry is found in a file that is refused") from None
            return False
        if usual is None:
            raise Finding("an index is not used that can be opened")
        index = checked if index is None else index
        if actions & _PICKLED:
            index = pickle.loads(pickle.dumps(index))
        if actions & _TRUNCATED:
            os.truncate(self._path, key % (len(stored) + 1))
            found = [index.find(number) for number in _keys(stored, key)]
            with suppress(CropIndexError, OSError):
                found += [entry for _, _, entry in index.images() if not isinstance(entry, str)]
            if key % (len(stored) + 1) < len(stored) and any(entry is not None for entry in found):
                raise Finding("an entry is found in a file that was truncated")
        else:
            self._use(index, stored, options, key)
        return True

    def _usual(self) -> Any:
        """Open the file as that next to a record file or in a folder; a warning says that it cannot be used."""
        with warnings.catch_warnings(record=True) as warned:
            warnings.simplefilter("always")
            crops: Any = open_record_crops("auto", [self._record_file])
            if crops is None:
                os.link(self._path, self._folder / "images.crops")
                crops = open_folder_crops("auto", str(self._folder), [])
                os.unlink(self._folder / "images.crops")
        if any(one.category is not CropIndexWarning for one in warned) or (
            crops is None and len(warned) != 2
        ):
            raise Finding(f"warnings: {[str(one.message) for one in warned]}")
        return crops

    def _use(self, index: CropIndex, stored: bytes, options: DecodeOptions, key: int) -> None:
        """Compare what is found with a plain reading of the file, and crops by it with a full decode."""
        for number, _, entry in index.images():
            if not isinstance(entry, str) and _plain(stored, number) not in (None, bytes(entry)):
                raise Finding(f"another entry is listed for {number}")
        for number in _keys(stored, key):
            found = index.find(number)
            right = _plain(stored, number)
            if found is None:
                if right is not None and right != b"":
                    raise Finding(f"the entry of {number} is not found")
                continue
            if right is not None and bytes(found) != right:
                raise Finding(f"another entry is found for {number}")
            self._judge(number, options, key, found)

    def _judge(self, number: int, options: DecodeOptions, key: int, entry: Any) -> None:
        """Compare a crop by an entry that is found with a full decode."""
        image = self._pairs[number // _STEP % len(self._pairs)][0]
        self._oracle.judge(image, options, key + number, decode_whole(image, options), entry)

    def _continue(self, stored: bytes, options: DecodeOptions, key: int) -> bool:
        """Continue a partial file with one more entry."""
        partial = partial_path(self._folder / "a.crops")
        partial.write_bytes(stored)
        wanted: dict[int, bytes | None] = {}
        view, end = memoryview(stored), HEADER_NBYTES
        while (frame := read_frame(view, end)) is not None:
            wanted[frame.key] = stored[frame.at : frame.at + frame.length] if frame.kind == 1 else None
            end = frame.end
        kind = FOLDER if stored[12:16] == struct.pack("<I", FOLDER) else RECORDS
        writer = CropIndexWriter(self._path, kind=kind, source=_SOURCE)
        restored = len(writer)
        if not restored:
            wanted.clear()
        data, entry = self._pairs[0]
        writer.put(5 * _STEP, len(data), entry)
        wanted[5 * _STEP] = entry
        writer.finish()
        index = CropIndex(self._path)
        index.refused()
        if len(index) != len(wanted):
            raise Finding(f"{len(index)} images, not {len(wanted)}")
        for number, right in wanted.items():
            found = index.find(number)
            if (None if found is None else bytes(found)) != (right or None):
                raise Finding(f"another entry is found for {number}")
            if found is not None:
                self._judge(number, options, key, found)
        return restored > 0

    def _put(self, stored: bytes) -> None:
        """Write another file in place of the last one, which may be mapped still."""
        part = self._path + ".new"
        with open(part, "wb") as file:
            file.write(stored)
        os.replace(part, self._path)


def _keys(stored: bytes, key: int) -> list[int]:
    """Return keys to be looked for: those of the valid file, and some of the tables."""
    keys = [_STEP * number for number in range(9)]
    keys += [_STEP * (key % 9) + 1, key, 2**64 - 1]
    images, tables_at = struct.unpack_from("<QQ", stored, 16)
    keys += struct.unpack_from(f"<{min(images, 4)}Q", stored, tables_at)
    return keys


def _plain(stored: bytes, key: int) -> bytes | None:
    """Return the entry of a key, b"" if there is none, or None if keys are not in ascending order.

    Args:
        stored: a file that was accepted.
        key: the key.
    """
    images, at = struct.unpack_from("<QQ", stored, 16)
    keys = struct.unpack_from(f"<{images}Q", stored, at)
    places = struct.unpack_from(f"<{images}Q", stored, at + 8 * images)
    lengths = struct.unpack_from(f"<{images}I", stored, at + 16 * images)
    if list(keys) != sorted({*keys}):
        return None
    if key not in keys:
        return b""
    row = keys.index(key)
    inside = places[row] + lengths[row] <= len(stored)
    return stored[places[row] : places[row] + lengths[row]] if inside else b""


def _changed(data: bytearray, draw: Draw) -> None:
    """Make one change: of the header, of the tables, or anywhere."""
    kind = draw()
    if len(data) < HEADER_NBYTES:
        change(data, 0, draw, PIECES)
        return
    images, tables_at = struct.unpack_from("<QQ", data, 16)
    whole = HEADER_NBYTES <= tables_at <= len(data) - 20 * images
    if kind < 0.1:
        change_number(data, *pick(draw, _FIELDS), draw)
    elif kind < 0.55 and whole and images:
        column, row = int(draw() * 3), int(draw() * images)
        at = tables_at + 8 * images * column + (4 if column == 2 else 8) * row
        change_number(data, at, 4 if column == 2 else 8, draw)
    elif kind < 0.7 and whole and images:  # two images exchange their entries
        first, second = (int(draw() * images) for _ in range(2))
        columns = [(tables_at + 8 * images, 8), (tables_at + 16 * images, 4)]
        if draw() < 0.1:  # the keys are not in ascending order any more
            columns.append((tables_at, 8))
        for at, nbytes in columns:
            one, other = at + nbytes * first, at + nbytes * second
            data[one : one + nbytes], data[other : other + nbytes] = (
                data[other : other + nbytes],
                data[one : one + nbytes],
            )
    elif kind < 0.78 and whole:
        reasons = pick(draw, _REASONS)
        data[tables_at + 20 * images :] = reasons
        struct.pack_into("<I", data, 48, len(reasons))
    elif kind < 0.83 and whole:  # bytes are missing, or too many, before the tables
        extra = bytes(1 + int(draw() * 8))
        data[tables_at:tables_at] = extra
        struct.pack_into("<Q", data, 24, tables_at + len(extra))
    else:
        change(data, 0, draw, PIECES)


def _seal(data: bytearray) -> None:
    """Make the CRCs of tables and header right again."""
    if len(data) < HEADER_NBYTES:
        return
    (tables_at,) = struct.unpack_from("<Q", data, 24)
    struct.pack_into("<I", data, 52, zlib.crc32(data[tables_at:]))
    struct.pack_into("<I", data, 60, zlib.crc32(data[:60]))
