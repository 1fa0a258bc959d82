"""Headers of many image records, read without the images.

A header is 32 bytes with the record's framing, and reading it fetches a page or two. Headers of records close to each
other are read as one span of the file.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from aioloader.storage.local.descriptors import open_regular, read_into
from aioloader.storage.urls import is_url
from recordio import MAGIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array, IntArray
    from aioloader.storage.remote.transport import Version

HEADER_NBYTES = 24
"""Bytes of an image record's header without a label vector."""

# Framing of the first part (magic, flag and length), then the header.
_HEAD = np.dtype(
    [("magic", "<u4"), ("word", "<u4"), ("flag", "<u4"), ("label", "<f4"), ("id", "<u8"), ("id2", "<u8")]
)
_FRAMING_NBYTES = 8
# One span of up to this many bytes per record is read faster than the headers one by one.
_CLOSE = 8 << 10
_AT_ONCE = 4096


class RecordHeads:
    """First bytes of several records, parsed as headers of image records.

    Args:
        rows: uint8 (n, 32 + 4 * labels), first bytes of each record.
        got: int64 (n,), number of these bytes that were read from the file.

    Attributes:
        valid: bool (n,), True if a record begins at the offset.
        split: bool (n,), True if the record is stored in several parts.
        nbytes: int64 (n,), bytes of the first part without the framing: of the whole payload, unless it is split.
        packed: bool (n,), True if the payload is long enough for an image header and its labels.
        bare: bool (n,), True if the payload is a header with a label vector, without an image.
        flag: int64 (n,), number of labels in the vector; 0 for a scalar label.
        label: float32 (n,), the scalar label.
        id: uint64 (n,), the first id of the header.
        vectors: float32 (n, labels), the first labels of the vector; only the first `held` values of a row are valid.
        held: int64 (n,), number of valid labels in each row of `vectors`.
    """

    def __init__(self, rows: Array, got: IntArray) -> None:
        head: Array = np.ascontiguousarray(rows[:, : _HEAD.itemsize]).view(_HEAD)[:, 0]
        word = head["word"].astype(np.int64)
        self.valid: Array = (head["magic"] == MAGIC) & (word >> 29 <= 1) & (got >= _FRAMING_NBYTES)
        self.split: Array = word >> 29 == 1
        self.nbytes: IntArray = word & 0x1FFFFFFF
        self.flag: IntArray = head["flag"].astype(np.int64)
        self.label: Array = head["label"]
        self.id: Array = head["id"]
        whole = HEADER_NBYTES + 4 * self.flag
        # Any part of the vector of a split record may be in the next part.
        self.packed: Array = (
            self.valid
            & (np.where(self.split, HEADER_NBYTES, whole) <= self.nbytes)
            & (got >= _FRAMING_NBYTES + HEADER_NBYTES)
        )
        self.bare: Array = self.packed & ~self.split & (self.flag > 0) & (self.nbytes == whole)
        self.vectors: Array = np.ascontiguousarray(rows[:, _HEAD.itemsize :]).view("<f4")
        room = np.minimum(self.nbytes + _FRAMING_NBYTES, got) - _HEAD.itemsize
        self.held: IntArray = np.where(self.packed, np.clip(np.minimum(self.flag, room // 4), 0, None), 0)
        self._rows, self._got = rows, got

    def __len__(self) -> int:
        return len(self._got)

    @property
    def first_label(self) -> Array:
        """Return the scalar label or the first of the vector, float32 (n,); NaN without a label. Needs ``labels=1``."""
        first = np.where(self.held > 0, self.vectors[:, 0], np.float32(np.nan))
        labels: Array = np.where(self.packed & (self.flag == 0), self.label, first)
        return labels

    @classmethod
    def joined(cls, parts: Sequence[RecordHeads], order: IntArray | None = None) -> RecordHeads:
        """Concatenate headers.

        Args:
            parts: at least one, all read with the same number of labels.
            order: int64 (n,), position in the concatenation of each row of the result; None: unchanged.
        """
        rows = np.concatenate([part._rows for part in parts])
        got = np.concatenate([part._got for part in parts])
        return cls(rows, got) if order is None else cls(rows[order], got[order])


def read_heads(
    path: str, offsets: IntArray, *, labels: int = 0, version: Version | None = None
) -> RecordHeads:
    """Read the headers of records.

    Args:
        path: the record file, or its URL.
        offsets: int64 (n,), offsets of the records; an offset outside of the file is not `valid`. Reading is fastest
            in the order of the file.
        labels: number of labels of a vector to read.
        version: version of the object if `path` is a URL; None: it is requested from the server.

    Raises:
        OSError: the file cannot be read.
    """
    offsets = np.asarray(offsets, np.int64)
    if is_url(path):
        from aioloader.storage.remote import opening

        return RecordHeads(*opening.read_heads(path, version, offsets, _HEAD.itemsize + 4 * labels))
    rows = np.zeros((len(offsets), _HEAD.itemsize + 4 * labels), np.uint8)
    got = np.zeros(len(offsets), np.int64)
    fd = open_regular(path)
    try:
        nbytes = os.fstat(fd).st_size
        for low in range(0, len(offsets), _AT_ONCE):
            part = slice(low, low + _AT_ONCE)
            _read(fd, nbytes, offsets[part], rows[part], got[part])
    finally:
        os.close(fd)
    return RecordHeads(rows, got)


def _read(fd: int, nbytes: int, offsets: IntArray, rows: Array, got: IntArray) -> None:
    width = rows.shape[1]
    inside = np.flatnonzero((offsets >= 0) & (offsets < nbytes))
    if not len(inside):
        return
    low, high = int(offsets[inside].min()), int(offsets[inside].max()) + width
    if high - low <= len(inside) * _CLOSE:
        stretch = bytearray(high - low)
        held = read_into(fd, memoryview(stretch), low)
        at = offsets[inside] - low
        rows[inside] = np.lib.stride_tricks.sliding_window_view(np.frombuffer(stretch, np.uint8), width)[at]
        got[inside] = np.clip(held - at, 0, width)
    else:
        view = memoryview(rows.reshape(-1).data)
        for place in inside.tolist():
            start = place * width
            got[place] = read_into(fd, view[start : start + width], int(offsets[place]))
