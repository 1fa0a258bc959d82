"""Target: the making of entries of a crop index, and the cuts by them.

An input is one byte, which selects the options of the decode, and a JPEG. Either it is refused, or crops by its entry
are those of a full decode; and the compiled part does what Python does.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from simplejpeg import decode_jpeg

from aioloader.jpeg import read_frame
from aioloader.jpeg.crop_entry import check_entry
from aioloader.jpeg.crop_scan import build_entry
from aioloader.jpeg.crop_window import cut_by_entry
from aioloader.jpeg.huffman import NotIndexableError
from tests.aioloader.jpeg.entries import in_c_and_python
from tests.fuzz import jpegs
from tests.fuzz.jpeg_changes import changed
from tests.fuzz.jpeg_oracle import DecodeOptions, Oracle, box_of, decode_whole, key_of
from tests.fuzz.target import CORPUS, Draw, Finding, pick

_BOXES = 3
_LARGE = 15_000


class CropFiles:
    """Small JPEGs with faults: each is refused, or its entry changes no pixel."""

    def __init__(self) -> None:
        own = [path.read_bytes() for path in sorted((CORPUS / "crops").glob("*.jpg"))]
        self._seeds = own * 3 + jpegs.seeds()
        self._oracle = Oracle()

    def make(self, draw: Draw) -> bytes:
        """Return a valid JPEG with one to three faults or oddities, seldom without."""
        data = pick(draw, self._seeds)
        if draw() < 0.95:
            data = changed(data, draw, lambda draw: pick(draw, self._seeds))
        return bytes((int(draw() * 256),)) + data

    def check(self, data: bytes) -> bool:
        """Make the entry, and compare crops by it with those of a full decode."""
        key = key_of(data)
        options, stored = DecodeOptions.of(data[0] if data else 0, key), data[1:]
        whole = decode_whole(stored, options)
        # For small images no interval pays.
        interval = None if len(stored) > _LARGE and key & 1 else 1 + key % 5
        try:
            entry = in_c_and_python(lambda: build_entry(stored, interval=interval))
        except NotIndexableError:
            return read_frame(stored) is not None
        if key & 31 == 0 and build_entry(memoryview(stored), interval=interval) != entry:
            raise Finding("a second entry differs from the first")
        check_entry(entry, stored)
        for number in range(_BOXES):
            mixed = key + number * 0x01234567
            self._oracle.judge(stored, options, mixed, whole, entry)
            _check_cut(stored, entry, mixed)
        return True


def _check_cut(data: bytes, entry: bytes, key: int) -> None:
    """Decode a cut strictly, and compare it with a full strict decode."""
    frame = read_frame(data)
    assert frame is not None
    x, y, width, height = box = box_of(key, frame.width, frame.height)
    piece = in_c_and_python(lambda: cut_by_entry(data, frame, entry, box))
    if piece is None:
        return
    if piece.stops_early:
        raise Finding("a cut by an entry is said to stop early")
    # Of a row not more is added than a phantom, or a row of empty MCUs.
    if len(piece.data) > 2 * len(data) + 256 * (frame.mcu_rows + frame.mcus_per_row):
        raise Finding(f"a cut has {len(piece.data)} bytes, its file {len(data)}")
    colour = "GRAY" if frame.components == 1 else "RGB"
    part, whole = _strictly(piece.data, colour), _strictly(data, colour)
    if whole is None or part is None:
        if whole is not None:
            raise Finding(f"the cut for {box} of a valid file is damaged")
        return
    if part.shape[:2] != (piece.height, piece.width):
        raise Finding(f"a cut of {piece.width} x {piece.height} has the shape {part.shape}")
    left, top = x - piece.left, y - piece.top
    found = part[top : top + height, left : left + width]
    if not np.array_equal(found, whole[y : y + height, x : x + width]):
        raise Finding(f"the box {box} of its cut differs from that of a full decode")


def _strictly(data: bytes, colour: str) -> Any:
    try:
        return decode_jpeg(data, colour, strict=True)
    except (ValueError, RuntimeError):
        return None
