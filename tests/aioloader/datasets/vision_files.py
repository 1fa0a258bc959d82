"""Files of MNIST and CIFAR with random images, as they are published."""

from __future__ import annotations

import gzip
import io
import tarfile
from pathlib import Path
from typing import Any

import numpy as np


def idx(array: Any) -> bytes:
    head = bytes((0, 0, 8, array.ndim)) + b"".join(extent.to_bytes(4, "big") for extent in array.shape)
    return head + array.tobytes()


def write_mnist(root: Path, part: str, count: int, packed: bool) -> tuple[Any, Any]:
    rng = np.random.RandomState(count)
    images = rng.randint(0, 256, (count, 28, 28)).astype(np.uint8)
    labels = rng.randint(0, 10, count).astype(np.uint8)
    for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
        data = idx(array)
        name = f"{part}-{kind}-ubyte"
        (root / (f"{name}.gz" if packed else name)).write_bytes(gzip.compress(data) if packed else data)
    return images, labels


def cifar_rows(count: int, label_bytes: int, seed: int) -> Any:
    return np.random.RandomState(seed).randint(0, 256, (count, label_bytes + 3072)).astype(np.uint8)


def write_cifar(root: Path, files: dict[str, Any], archive: str | None) -> None:
    if archive is None:
        for name, rows in files.items():
            (root / name).write_bytes(rows.tobytes())
        return
    with tarfile.open(root / archive, "w:gz") as tar:
        for name, rows in files.items():
            member = tarfile.TarInfo(f"some-folder/{name}")
            member.size = rows.nbytes
            tar.addfile(member, io.BytesIO(rows.tobytes()))
