"""Target: the JPEG scanner and the cutter. Crops are compared with the same crops of a full decode.

An input is one byte, which selects the options of the decode, and a JPEG.
"""

from __future__ import annotations

from aioloader.jpeg import markers_are_whole, read_frame
from tests.fuzz.jpeg_changes import changed
from tests.fuzz.jpeg_oracle import DecodeOptions, Oracle, decode_whole, key_of
from tests.fuzz.target import CORPUS, Draw, pick


def seeds() -> list[bytes]:
    """Return the valid JPEGs from which inputs are made."""
    return [path.read_bytes() for path in sorted((CORPUS / "jpeg").glob("*.jpg"))]


class Jpegs:
    """Small JPEGs of every sampling, with and without restart markers, and faults in them."""

    def __init__(self) -> None:
        self._seeds = seeds()
        self._oracle = Oracle()

    def make(self, draw: Draw) -> bytes:
        """Return a valid JPEG with one to three faults or oddities."""
        data = changed(pick(draw, self._seeds), draw, lambda draw: pick(draw, self._seeds))
        return bytes((int(draw() * 256),)) + data

    def check(self, data: bytes) -> bool:
        """Decode the whole file, then a part of it by a cut, and compare."""
        key = key_of(data)
        options, stored = DecodeOptions.of(data[0] if data else 0, key), data[1:]
        if key & 15 == 0:
            markers_are_whole(stored)
        self._oracle.judge(stored, options, key, decode_whole(stored, options))
        return read_frame(stored) is not None
