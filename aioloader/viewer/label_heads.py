"""The labels of many records from their headers, without their images.

Records that lie close together are read as one stretch, others by their first bytes only.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

import numpy as np

from aioloader.storage.descriptors import open_regular, read_into
from aioloader.viewer.collection import LabelChunk
from aioloader.viewer.records import detection_boxes
from recordio import MAGIC

if TYPE_CHECKING:
    from aioloader._types import Array, IntArray

__all__ = ("label_heads",)

# Part head (magic, flag and length), then the image header.
_HEAD = np.dtype(
    [("magic", "<u4"), ("word", "<u4"), ("flag", "<u4"), ("label", "<f4"), ("id", "<u8"), ("id2", "<u8")]
)
_LABELS_LOOKED_AT = 240
_LOOK = _HEAD.itemsize + 4 * _LABELS_LOOKED_AT
# A stretch of this much per record is read faster than each record apart.
_CLOSE = 8 << 10
_LONGEST_STRETCH = 16 << 20
_FIRST_PART = 1


def label_heads(path: str, offsets: IntArray) -> LabelChunk:
    """The labels of the records at some offsets of a file.

    Of a record with several labels all count, up to `_LABELS_LOOKED_AT`; of a detection label the classes. A damaged
    record, or one without a header, has none.

    Raises:
        OSError: the file cannot be read.
    """
    rows, got = _first_bytes(path, offsets)
    heads = np.ascontiguousarray(rows[:, : _HEAD.itemsize]).view(_HEAD)[:, 0]
    size = (heads["word"] & 0x1FFFFFFF).astype(np.int64)
    flags = heads["flag"].astype(np.int64)
    sound = (
        (heads["magic"] == MAGIC)
        & (heads["word"] >> 29 <= _FIRST_PART)
        & (size >= _HEAD.itemsize - 8 + 4 * np.minimum(flags, 1))
        & (got >= _HEAD.itemsize)
    )
    single = sound & (flags == 0)
    first = np.where(single, heads["label"], np.float32(np.nan)).astype(np.float32)
    owners: list[int] = []
    values: list[Array] = []
    for place in np.flatnonzero(sound & (flags > 0)).tolist():
        held = int(min(flags[place], (size[place] - 24) // 4, (got[place] - _HEAD.itemsize) // 4))
        vector = rows[place, _HEAD.itemsize : _HEAD.itemsize + 4 * held].copy().view("<f4")
        boxes = detection_boxes(vector) if held == flags[place] else ()
        found = np.array([box.label for box in boxes], np.float32) if boxes else vector
        owners.extend([place] * len(found))
        values.append(found)
    return LabelChunk(
        first,
        np.array(owners, np.int64),
        np.concatenate(values).astype(np.float32) if values else np.empty(0, np.float32),
    )


def _first_bytes(path: str, offsets: IntArray) -> tuple[Array, IntArray]:
    """uint8 (n, `_LOOK`) and how many of them are the file's."""
    count = len(offsets)
    rows = np.zeros((count, _LOOK), np.uint8)
    got = np.zeros(count, np.int64)
    fd = open_regular(path)
    try:
        nbytes = os.fstat(fd).st_size
        inside = (offsets >= 0) & (offsets < nbytes)
        if not inside.any():
            return rows, got
        low, high = int(offsets[inside].min()), int(offsets[inside].max()) + _LOOK
        if high - low <= min(count * _CLOSE, _LONGEST_STRETCH):
            stretch = bytearray(high - low)
            held = read_into(fd, memoryview(stretch), low)
            at = offsets[inside] - low
            rows[inside] = np.frombuffer(stretch, np.uint8)[at[:, None] + np.arange(_LOOK)]
            got[inside] = np.minimum(held - at, _LOOK)
        else:
            view = memoryview(rows.reshape(-1).data)
            for place in np.flatnonzero(inside).tolist():
                start = place * _LOOK
                got[place] = read_into(fd, view[start : start + _LOOK], int(offsets[place]))
    finally:
        os.close(fd)
    return rows, got
