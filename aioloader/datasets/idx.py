"""IDX files of bytes, the format of MNIST.

Format: two zero bytes, type 8 (uint8), number of axes, big-endian uint32 extents, values in C order.
"""

from __future__ import annotations

import gzip
import zlib
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    from aioloader._types import Array

__all__ = ("read_idx",)


def read_idx(path: str, axes: int) -> Array:
    """The array in an IDX file, uint8.

    Args:
        path: the file; gzipped if its name ends in ".gz".
        axes: the number of axes that it must have.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not in this format, or damaged.
    """
    try:
        with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
            data = file.read()
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    head = 4 + 4 * axes
    if len(data) < head or data[:4] != bytes((0, 0, 8, axes)):
        raise ValueError(f"{path} is no IDX file of {axes} axes of bytes")
    shape = tuple(np.frombuffer(data, ">u4", axes, 4).tolist())
    count = 1
    for extent in shape:
        count *= extent
    if len(data) != head + count:
        raise ValueError(f"{path} should hold {head + count} bytes for shape {shape}, but has {len(data)}")
    return np.frombuffer(data, np.uint8, count, head).reshape(shape).copy()
