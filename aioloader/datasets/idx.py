"""IDX files of bytes, the format of MNIST.

Reads have a size limit: a compressed megabyte can unpack to a gigabyte, and a header can announce any size.

Format: two zero bytes, type 8 (uint8), number of axes, big-endian uint32 extents, values in C order.
"""

from __future__ import annotations

import gzip
import math
import zlib
from typing import TYPE_CHECKING, Protocol

import numpy as np

from aioloader.storage.local.descriptors import open_regular

if TYPE_CHECKING:
    from aioloader.foundation.types import Array


MOST_NBYTES = 1 << 31
"""Largest unpacked size in bytes of one file of arrays: forty times that of MNIST."""

_PIECE = 1 << 20


class Readable(Protocol):
    """Object with `read(size)`."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none at the end."""
        ...


def read_up_to(file: Readable, most: int) -> bytes:
    """Return the bytes of a file, at most the first `most`; memory grows with the bytes read, not those announced."""
    data = bytearray()
    while piece := file.read(min(most - len(data), _PIECE)):
        data += piece
    return bytes(data)


def read_idx(path: str, axes: int) -> Array:
    """Read the array in an IDX file, uint8.

    Args:
        path: the file; gzipped if its name ends in ".gz".
        axes: the number of axes that it must have.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not in this format, is corrupt, or has more than 2 GiB.
    """
    size = 4 + 4 * axes
    try:
        with open(open_regular(path), "rb") as raw, gzip.open(raw) if path.endswith(".gz") else raw as file:
            head = file.read(size)
            if len(head) < size or head[:4] != bytes((0, 0, 8, axes)):
                raise ValueError(f"{path} is not an IDX file of bytes with {axes} axes")
            shape = tuple(np.frombuffer(head, ">u4", axes, 4).tolist())
            count = math.prod(shape)
            if max(count, *shape) > MOST_NBYTES:
                raise ValueError(f"{path} announces shape {shape}; more than {MOST_NBYTES} bytes are refused")
            # One byte more, to find out whether the file is longer than announced.
            data = read_up_to(file, count + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if len(data) != count:
        held = "more" if len(data) > count else str(size + len(data))
        raise ValueError(f"{path} should hold {size + count} bytes for shape {shape}, but has {held}")
    return np.frombuffer(data, np.uint8).reshape(shape).copy()
