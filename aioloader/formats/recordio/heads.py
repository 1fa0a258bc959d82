"""Headers of image records: many are read without the images, and show the kinds of records.

A header is 32 bytes with the record's framing, and reading it fetches a page or two. Headers of records close to each
other are read as one span of the file.

InsightFace's train.rec (face recognition): record 0 has no image, and two labels, the first key of its identity
records and the last one plus one. An identity record has no image either, and two labels, the first key of its images
and the last one plus one. Detection (MXNet's `ImageDetRecordIter`): label vectors that begin with the width of their
header and the width of an object; see `aioloader.mxnet.io.ImageDetRecordIter`.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aioloader.storage.cache.base import PlacedSpans
from aioloader.storage.local.descriptors import open_regular, read_into
from aioloader.storage.urls import cache_name, is_url
from recordio import MAGIC

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array, IntArray
    from aioloader.storage.cache.base import Cache
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
_MOST_WIDTH = 1000


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
        scalar: bool (n,), True if the record is packed with a scalar label, which is in the header itself.
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
        self.scalar: Array = self.packed & (self.flag == 0)
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
        labels: Array = np.where(self.scalar, self.label, first)
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
    path: str,
    offsets: IntArray,
    *,
    labels: int = 0,
    version: Version | None = None,
    cache: Cache | None = None,
) -> RecordHeads:
    """Read the headers of records.

    Args:
        path: the record file, or its URL.
        offsets: int64 (n,), offsets of the records; an offset outside of the file is not `valid`.
        labels: number of labels of a vector to read.
        version: version of the object if `path` is a URL; None: it is requested from the server.
        cache: headers of records of an object that are in it are not requested.

    Raises:
        OSError: the file cannot be read.
    """
    offsets = np.asarray(offsets, np.int64)
    order: slice | IntArray = slice(None)
    back = order
    if (offsets[1:] < offsets[:-1]).any():
        order = np.argsort(offsets, kind="stable")
        back = np.argsort(order)
    width = _HEAD.itemsize + 4 * labels
    if is_url(path):
        found, found_nbytes = _read_object(path, version, offsets[order], width, cache)
    else:
        found, found_nbytes = _read_file(path, offsets[order], width)
    return RecordHeads(found[back], found_nbytes[back])


def _read_object(
    url: str, version: Version | None, offsets: IntArray, width: int, cache: Cache | None
) -> tuple[Array, IntArray]:
    """Read the first `width` bytes at offsets, as `_read_file`. Nothing is added to the cache: it has whole records."""
    from aioloader.storage.remote import opening

    if cache is None or version is None or version.tag is None:
        return opening.read_heads(url, version, offsets, width)
    rows = np.zeros((len(offsets), width), np.uint8)
    inside = (offsets >= 0) & (offsets < version.nbytes)
    got = np.where(inside, np.minimum(width, version.nbytes - offsets), 0)
    places = PlacedSpans(offsets, got, np.arange(len(offsets)) * width).take(inside)
    inside[inside] = ~cache.read(cache_name(url), version.tag, places, rows.reshape(-1).data)
    rows[inside], _ = opening.read_heads(url, version, offsets[inside], width)
    return rows, got


def _read_file(path: str, offsets: IntArray, width: int) -> tuple[Array, IntArray]:
    """Read the first `width` bytes at ascending offsets; return them, and how many there are at each."""
    rows = np.zeros((len(offsets), width), np.uint8)
    got = np.zeros(len(offsets), np.int64)
    fd = open_regular(path)
    try:
        nbytes = os.fstat(fd).st_size
        for low in range(0, len(offsets), _AT_ONCE):
            part = slice(low, low + _AT_ONCE)
            _read(fd, nbytes, offsets[part], rows[part], got[part])
    finally:
        os.close(fd)
    return rows, got


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


class Detection(NamedTuple):
    """Layout of a detection label.

    Attributes:
        header_width: number of values in the header, including the two widths; at least 2.
        object_width: number of values of an object; at least 5: class, left, top, right, bottom, and perhaps more.
        objects: number of objects.
    """

    header_width: int
    object_width: int
    objects: int


def key_range(labels: Sequence[float], body_nbytes: int) -> tuple[int, int] | None:
    """Return the keys in a header record of InsightFace's layout (record 0, or an identity record).

    Args:
        labels: label vector of the record.
        body_nbytes: number of bytes after its header.

    Returns:
        first key, and last key plus one; None for any other record.
    """
    if body_nbytes or len(labels) != 2:
        return None
    first, stop = float(labels[0]), float(labels[1])
    if not (first.is_integer() and stop.is_integer() and 0 <= first <= stop):
        return None
    return int(first), int(stop)


def detection_label(labels: Sequence[float] | Array) -> Detection | None:
    """Return the layout of a label vector of a detection set; None for any other label vector.

    Args:
        labels: the label vector of a record.
    """
    if len(labels) < 2:
        return None
    header, width = float(labels[0]), float(labels[1])
    if not (
        header.is_integer()
        and width.is_integer()
        and 2 <= header <= _MOST_WIDTH
        and 5 <= width <= _MOST_WIDTH
    ):
        return None
    objects, rest = divmod(len(labels) - int(header), int(width))
    if rest or objects < 0:
        return None
    return Detection(int(header), int(width), objects)
