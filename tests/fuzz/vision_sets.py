"""Target: files of MNIST and CIFAR."""

from __future__ import annotations

import gzip
import io
import tarfile
from random import Random

import numpy as np

from aioloader.formats.arrays.vision import CIFAR10, MNIST
from tests.fuzz.target import Draw, Finding, change, dictionary, pick, scratch_folder

PIECES = dictionary("number")


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
