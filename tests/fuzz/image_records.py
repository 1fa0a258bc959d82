"""Target: image records: header, labels and a raw image; decoded plainly and by the fused decoder."""

from __future__ import annotations

import struct
import zlib
from random import Random
from typing import Any

import numpy as np

from aioloader.errors import DecodeError
from aioloader.formats.recordio.decoding import ImageRecordDecoder
from aioloader.foundation.types import ItemLocation, StageTimer
from aioloader.rng import Rng
from aioloader.transforms.raw import encode_raw
from recordio import CorruptRecordError, HeaderError, IRHeader, pack, serialize, unpack
from tests.fuzz.target import Draw, Finding, change, dictionary, pick

PIECES = dictionary("float")


class Headers:
    """Image records: header, labels and a raw image of a few pixels; decoded plainly and by the fused decoder."""

    def __init__(self) -> None:
        rng = Random(4)
        image = encode_raw(np.arange(36, dtype=np.uint8).reshape(4, 3, 3))
        labels: list[Any] = [0.0, 3.0, 2.5, -1.0, 16777216.0, [1.0], [1.0, 2.5], list(range(9))]
        self._bases = [
            pack(IRHeader(0, label, rng.getrandbits(64), 0), image) for label in labels for _ in range(2)
        ]
        decoders = [
            ImageRecordDecoder(1, "apply", 1 << 16, scalar, vector)
            for scalar, vector in (("int64", "float32"), ("float32", "float32"), ("uint8", "uint8"))
        ]
        decoders += [ImageRecordDecoder(0, "ignore", 10, "float16", "float16")]
        self._decoders = [(decoder, decoder.fuse(())) for decoder in decoders]

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        data = bytearray(pick(draw, self._bases))
        for _ in range(int(draw() * 3) + 1):
            kind = draw()
            if kind < 0.3 and len(data) >= 24:
                piece = pick(draw, PIECES)
                at = 4 * int(draw() * 12)
                data[at : at + len(piece)] = piece
            elif kind < 0.5 and len(data) >= 8:
                struct.pack_into("<f", data, 4, int(draw() * 600) / 2 - 50)
            else:
                change(data, 0 if draw() < 0.3 else 24, draw, PIECES)
        return bytes(data)

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        plain, fused = self._decoders[zlib.crc32(data) % len(self._decoders)]
        assert fused is not None
        framed = memoryview(serialize(data))
        location = ItemLocation(None, "x.rec", 0)
        one = _outcome(lambda: plain(framed, None, location))
        other = _outcome(lambda: fused(framed, None, location, rng=Rng(0), out=None, trace=StageTimer([])))
        if one[0] != other[0] or not _same(one[1], other[1]):
            raise Finding(f"{one} when decoded plainly, {other} when fused")
        try:
            header, body = unpack(data)
        except HeaderError:
            if one[0] != "HeaderError":
                raise Finding(f"no header, and yet {one}") from None
            return False
        if header.flag and len(header.label) * 4 + 24 + len(body) != len(data):
            raise Finding("header and body are not the payload")
        return True


def _outcome(decode: Any) -> tuple[str, Any]:
    try:
        return "", decode()
    except (DecodeError, HeaderError, CorruptRecordError) as error:
        return type(error).__name__, str(error)
    except ValueError as error:
        if "does not fit label_dtype" not in str(error):
            raise
        return "label", str(error)


def _same(one: Any, other: Any) -> bool:
    if isinstance(one, str):
        return one == other
    return all(
        np.asarray(a).dtype == np.asarray(b).dtype and np.asarray(a).tobytes() == np.asarray(b).tobytes()
        for a, b in zip(one, other, strict=True)
    )
