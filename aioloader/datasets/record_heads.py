"""The first bytes of image records, one read for each: labels of millions of records without their images."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING, NamedTuple

from aioloader.storage.descriptors import open_regular, read_into
from recordio import MAGIC

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

__all__ = ("RecordHead", "record_heads")

# Part head, image header, and the first of several labels.
_HEAD = struct.Struct("<IIIfQQf")
_PART_NBYTES = 8
_IMAGE_NBYTES = 24


class RecordHead(NamedTuple):
    """The beginning of an image record.

    Attributes:
        flag: number of labels that follow the header; 0: the header has the only one.
        label: the first label.
        body: whether anything follows the labels.
    """

    flag: int
    label: float
    body: bool


def record_heads(path: str, offsets: Iterable[int]) -> Iterator[RecordHead | None]:
    """The beginning of the record at each offset; None where no image record begins.

    Args:
        path: the .rec file.
        offsets: places in it, in bytes; those in the order of the file are read the fastest.

    Raises:
        OSError: the file cannot be read.
    """
    buffer = bytearray(_HEAD.size)
    view = memoryview(buffer)
    fd = open_regular(path)
    try:
        for offset in offsets:
            got = read_into(fd, view, offset) if offset >= 0 else 0
            yield _parse(buffer, got) if got >= _PART_NBYTES + _IMAGE_NBYTES else None
    finally:
        os.close(fd)


def _parse(buffer: bytearray, got: int) -> RecordHead | None:
    magic, word, flag, label, _, _, first = _HEAD.unpack(buffer)
    kind, nbytes = word >> 29, word & 0x1FFFFFFF
    needed = _IMAGE_NBYTES + 4 * bool(flag)
    if magic != MAGIC or kind not in (0, 1) or nbytes < needed or got < _PART_NBYTES + needed:
        return None
    return RecordHead(flag, first if flag else label, kind == 1 or nbytes > _IMAGE_NBYTES + 4 * flag)
