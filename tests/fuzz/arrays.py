"""Target: files of `mx.nd.save`."""

from __future__ import annotations

import struct
import tempfile
from pathlib import Path

import numpy as np

from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.ndarray_file import load_frombuffer, save
from tests.fuzz.target import Draw, Finding, change, dictionary, pick

PIECES = dictionary("float")


class Arrays:
    """Files of `mx.nd.save`."""

    def __init__(self) -> None:
        values = [np.arange(6, dtype=np.float32).reshape(2, 3), np.zeros((1, 2, 1), np.uint8)]
        types = [np.ones(2, name) for name in ("f4", "f8", "f2", "u1", "i4", "i1", "i8")]
        with tempfile.TemporaryDirectory() as folder:
            path = Path(folder, "a.params")
            self._bases = []
            for data in (values, dict(zip(("a", "bc"), values, strict=True)), values[:1], types):
                save(path, data)
                self._bases.append(path.read_bytes())
        self._bases += [_older_files(form) for form in range(3)]

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        data = bytearray(pick(draw, self._bases))
        for _ in range(int(draw() * 3) + 1):
            if draw() < 0.5:
                piece = pick(draw, PIECES)
                at = 16 + 4 * int(draw() * (len(data) // 4))
                data[at : at + len(piece)] = piece
            else:
                change(data, 16, draw, PIECES)
        return bytes(data)

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        try:
            found = load_frombuffer(data)
        except MXNetError as error:
            return not str(error).endswith(("near byte 0", "near byte 8"))
        arrays = found.values() if isinstance(found, dict) else found
        if sum(array.asnumpy().nbytes for array in arrays) > len(data):
            raise Finding("more values than bytes")
        return True


def _older_files(form: int) -> bytes:
    """Return one array in the layouts that `save` does not write: the oldest two, and that of arrays without axes."""
    shape = (
        struct.pack("<3I", 2, 2, 3),
        struct.pack("<Ii2q", 0xF993FAC8, 2, 2, 3),
        struct.pack("<Iii", 0xF993FACA, 0, 0),
    )[form]
    values = np.arange(6 if form < 2 else 1, dtype="<f4").tobytes()
    return struct.pack("<3Q", 0x112, 0, 1) + shape + struct.pack("<3i", 1, 0, 0) + values + bytes(8)
