"""Targets: image records, files of MNIST and CIFAR, and files of arrays."""

from __future__ import annotations

import gzip
import io
import struct
import tarfile
import tempfile
import zlib
from pathlib import Path
from random import Random
from typing import Any

import numpy as np

from aioloader.datasets.decoding import ImageRecordDecoder
from aioloader.errors import DecodeError
from aioloader.formats.arrays.vision import CIFAR10, MNIST
from aioloader.foundation.types import ItemLocation, StageTimer
from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.ndarray_file import load_frombuffer, save
from aioloader.rng import Rng
from aioloader.transforms.raw import encode_raw
from recordio import CorruptRecordError, HeaderError, IRHeader, pack, serialize, unpack
from tests.fuzz.target import Draw, Finding, change, dictionary, pick, scratch_folder

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


def idx_file(shape: tuple[int, ...], rng: Random) -> bytes:
    """Return a file of random bytes as MNIST has it."""
    head = bytes((0, 0, 8, len(shape))) + b"".join(extent.to_bytes(4, "big") for extent in shape)
    return head + rng.randbytes(int(np.prod(shape)))


class Sets:
    """Files of MNIST and CIFAR. The first byte of an input selects the kind of the rest."""

    _KINDS = 6

    def __init__(self) -> None:
        rng = Random(5)
        self._root = scratch_folder(self)
        self._labels = idx_file((3,), rng)
        images = idx_file((3, 4, 5), rng)
        rows = rng.randbytes(2 * 3073)
        small = b"\1" * 3073
        self._bases = [
            (0, images),
            (1, self._labels),
            (2, gzip.compress(images, mtime=0)),
            (3, rows),
            (4, _tar(small)),
            (4, _tar(small, tarfile.PAX_FORMAT, "ü" * 120)),
            (4, _tar(small, tarfile.GNU_FORMAT, "x" * 150)),
            (5, gzip.compress(_tar(small), mtime=0)),
        ]
        (self._root / "train-labels-idx1-ubyte").write_bytes(self._labels)
        (self._root / "t10k-images-idx3-ubyte").write_bytes(images)

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        kind, base = pick(draw, self._bases)
        data = bytearray(base)
        # After the magic number or the first fields; an archive's header is its first 512 bytes.
        low = (0, 0, 10, 0, 0, 10)[kind]
        for _ in range(int(draw() * 3) + 1):
            if kind == 4 and draw() < 0.8:
                at = 512 * int(draw() * (len(data) // 512)) + int(draw() * 512)
                if draw() < 0.3:
                    at = 124 + int(draw() * 12) + (0 if draw() < 0.2 else 1024)  # a member's size
                data[at : at + 1] = bytes((int(draw() * 256),))
                _sum(data)
            elif kind < 2 and draw() < 0.6:
                at = 4 + int(draw() * 12)
                data[at : at + 1] = bytes((int(draw() * 256),))
            else:
                change(data, low, draw, PIECES)
        return bytes((kind,)) + bytes(data)

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        kind, content = data[0] % self._KINDS if data else 0, data[1:]
        name = (
            "train-images-idx3-ubyte",
            "t10k-labels-idx1-ubyte",
            "train-images-idx3-ubyte.gz",
            "test_batch.bin",
            "cifar-10-binary.tar.gz",
            "cifar-10-binary.tar.gz",
        )[kind]
        path = self._root / name
        path.write_bytes(gzip.compress(content, 1) if kind == 4 else content)
        try:
            dataset = CIFAR10(self._root, train=False) if kind > 2 else MNIST(self._root, train=kind != 1)
        except ValueError as error:
            damaged = "is damaged" in str(error) and not _begins_well(kind, content)
            return "not an IDX file" not in str(error) and not damaged
        finally:
            path.unlink()
        images, labels = dataset.arrays
        if len(images) != len(labels) or images.ndim != 4 or labels.dtype != np.int32:
            raise Finding(f"images {images.shape}, labels {labels.dtype} {labels.shape}")
        return True


def _begins_well(kind: int, content: bytes) -> bool:
    """Return whether an archive's first header is valid."""
    try:
        member = tarfile.TarInfo.frombuf(content[:512], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return kind == 4 and 0 <= member.size <= len(content)


def _tar(rows: bytes, form: int = tarfile.USTAR_FORMAT, folder: str = "cifar-10") -> bytes:
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=form) as tar:
        for name in ("readme.html", "test_batch.bin"):
            member = tarfile.TarInfo(f"{folder}/{name}")
            member.size = len(rows) if name.endswith("bin") else 20
            tar.addfile(member, io.BytesIO(rows))
    return out.getvalue()[: 512 * 16]


def _sum(data: bytearray) -> None:
    """Correct the checksums of an archive's headers, so that the reader accepts them."""
    for at in range(0, len(data) - 511, 512):
        if data[at + 257 : at + 262] == b"ustar":
            data[at + 148 : at + 156] = b" " * 8
            data[at + 148 : at + 156] = b"%06o\0 " % sum(data[at : at + 512])


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
