"""Inspection of the files of MNIST and CIFAR."""

from __future__ import annotations

import gzip
import os
import struct

import numpy as np

from aioloader.formats.inspection import Inspection

_CIFAR_ROWS = {3073: "CIFAR-10", 3074: "CIFAR-100"}


def inspect_array_file(path: str) -> Inspection | None:
    """Inspect an IDX file (MNIST) or a CIFAR binary file by its beginning and its size; return None if it is neither.

    Raises:
        OSError: it cannot be read.
    """
    size = os.path.getsize(path)
    packed = path.endswith(".gz")
    try:
        with gzip.open(path) if packed else open(path, "rb") as file:
            head = file.read(16)
    except (gzip.BadGzipFile, EOFError):
        return None
    if len(head) >= 8 and head[:3] == b"\0\0\x08" and 1 <= head[3] <= 3 and len(head) >= 4 + 4 * head[3]:
        shape = list(struct.unpack_from(f">{head[3]}I", head, 4))
        expected = 4 + 4 * head[3] + int(np.prod(shape, dtype=object))
        damage = []
        if not packed and expected != size:
            damage.append(f"{path} should have {expected} bytes for its shape {shape}, and has {size}")
        return Inspection(path, "IDX files", 1, size, shape[0], details={"shape": shape}, damage=damage)
    if path.endswith(".bin"):
        for row, name in _CIFAR_ROWS.items():
            if size and size % row == 0:
                details = {"set": name, "shape": [size // row, 32, 32, 3]}
                return Inspection(path, "CIFAR files", 1, size, size // row, details=details)
    return None
