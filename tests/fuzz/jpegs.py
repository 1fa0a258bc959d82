"""Target: the JPEG scanner and the cutter. Crops are compared with the same crops of a full decode.

An input is one byte, which selects the options of the decode, and a JPEG.
"""

from __future__ import annotations

from aioloader.jpeg import cut, markers_are_whole, read_frame
from aioloader.transforms.decode import stored_box
from tests.fuzz.jpeg_changes import changed
from tests.fuzz.jpeg_oracle import (
    ALONE,
    EQUAL,
    REFUSED,
    TOLERANT,
    DecodeOptions,
    Oracle,
    decode_whole,
    key_of,
)
from tests.fuzz.mutation import pick
from tests.fuzz.target import CORPUS, Draw, corpus_of


def seeds() -> list[bytes]:
    """Return the valid JPEGs from which inputs are made."""
    return [path.read_bytes() for path in sorted((CORPUS / "jpeg").glob("*.jpg"))]


class Jpegs:
    """Small JPEGs of every sampling, with and without restart markers, and faults in them."""

    past = frozenset((REFUSED, TOLERANT, ALONE, "equal, cut", "equal, whole"))

    def __init__(self) -> None:
        self._seeds = [bytes((0,)) + data for data in seeds()]
        self._seeds += [path.read_bytes() for path in corpus_of("jpeg")]
        self._oracle = Oracle()

    def make(self, draw: Draw) -> bytes:
        """Return a valid JPEG with one to three faults or oddities."""
        data = changed(pick(draw, self._seeds)[1:], draw, self.other)
        return bytes((int(draw() * 256),)) + data

    def other(self, draw: Draw) -> bytes:
        """Return another valid JPEG."""
        return pick(draw, self._seeds)[1:]

    def check(self, data: bytes) -> str:
        """Decode the whole file, then a part of it by a cut, and compare."""
        key = key_of(data)
        options, stored = DecodeOptions.of(data[0] if data else 0, key), data[1:]
        frame = read_frame(stored)
        whole = decode_whole(stored, options)
        if key & 15 == 0:
            markers_are_whole(stored)
        outcome, lazy, box = self._oracle.judge(stored, options, key, whole)
        if frame is None:
            return "no frame" if outcome == REFUSED else "no frame, whole" if outcome == EQUAL else outcome
        if outcome != EQUAL:
            return outcome
        orientation = lazy._orientation
        here = stored_box(box, orientation, frame.height, frame.width)
        return "equal, whole" if cut(stored, frame, here, scale=options.scale) is None else "equal, cut"
