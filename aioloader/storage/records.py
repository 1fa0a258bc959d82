"""How long records are: their own heads say it, the offsets of an index only let it be guessed.

A wrong line of an index may lie inside a record; the guess for that record is then too short. It is read again
with its real length, unless another record's head stands where the guess ends: then the index is right and the
record's own length was damaged. So it was where a record ends before the guess does, no head follows it, and one
stands where the guess ends.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.storage.local.descriptors import read_into
from recordio._framing import (
    FIRST,
    HEAD_SIZE,
    LAST,
    MAGIC,
    MAX_PAYLOAD,
    WHOLE,
    check_head,
    framed_length,
    overlap_error,
    short_record_error,
    starts_record,
    unpack_head,
)
from recordio.errors import CorruptIndexError, CorruptRecordError, TruncatedRecordError

if TYPE_CHECKING:
    from collections.abc import Generator

    from aioloader.foundation.types import IntArray

__all__ = (
    "TRUSTED_SPAN_BYTES",
    "cut_short",
    "doubtful",
    "extent_steps",
    "no_place",
    "record_extent",
    "unlike",
    "unreadable_line",
)

TRUSTED_SPAN_BYTES = 8 << 20
"""A span that an index gives is a guess. Above this size, and where no record fits, the record's own heads are asked
first, so that an index with few lines does not make us read everything between them."""

# Enough for any record that is not made of magic words; beyond it the format's own limit holds.
_MOST_HEADS = 4096
_UNREADABLE = -(1 << 62)
# An index with few lines leaves much between its records that says nothing of them.
_NEAR = 8 << 20
_MAX_RECORD_BYTES = framed_length(MAX_PAYLOAD)


def doubtful(length: IntArray) -> Any:
    """Which lengths, int64 (n,), are no length of a record, or too great to be read without asking: bool (n,)."""
    return (length > TRUSTED_SPAN_BYTES) | (length < HEAD_SIZE)


def cut_short(path: str, offset: int, needed: int, held: int) -> TruncatedRecordError:
    """The error for a record that needs more bytes than the file has from its offset on."""
    return TruncatedRecordError(
        "the file ends inside this record; it may have been cut, or its index belongs to another file",
        path=path,
        offset=offset,
        expected=f"{needed} bytes",
        found=f"{max(held, 0)} bytes",
    )


def unreadable_line(line: IntArray) -> IntArray:
    """Offsets that stand for lines of an index that cannot be read, counted from 0: less than any that is written."""
    return _UNREADABLE - line


def no_place(path: str, offset: int, length: int) -> CorruptRecordError | CorruptIndexError:
    """The error for a span in which no record can be, from an index.

    Args:
        path: the record file.
        offset: of the span; for a line that cannot be read see `unreadable_line`.
        length: of the span.
    """
    if offset <= _UNREADABLE:
        return CorruptIndexError(
            f"this line of the index of {path} cannot be read; `aioloader verify FILE` tells what is wrong with it, "
            "`aioloader repair SRC DST` writes a copy with an index of what can be told",
            line=_UNREADABLE - offset + 1,
        )
    return TruncatedRecordError(
        "the index gives a place where the file holds no record; rebuild it with `python -m recordio index`",
        path=path,
        offset=offset,
        expected=f"{HEAD_SIZE} bytes or more",
        found=f"{max(length, 0)} bytes",
    )


def record_extent(fd: int, path: str, offset: int, guess: int) -> int:
    """Bytes of the record at `offset` of an open file, heads and padding included.

    Args:
        fd: the file.
        path: its name, for errors.
        offset: where the record begins.
        guess: bytes up to the next offset of the index.

    Raises:
        OSError: the file cannot be read.
        CorruptRecordError: there is no record, or its length was damaged.
        TruncatedRecordError: the file ends inside it.
    """
    head = bytearray(HEAD_SIZE)
    steps = extent_steps(path, offset, guess, os.fstat(fd).st_size - offset)
    try:
        place = next(steps)
        while True:
            place = steps.send(bytes(head[: read_into(fd, memoryview(head), place)]))
    except StopIteration as stop:
        return int(stop.value)


def extent_steps(path: str, offset: int, guess: int, most: int) -> Generator[int, bytes, int]:
    """The same wherever the file is: it asks for heads, and is sent them.

    Args:
        path: the file, for errors.
        offset: where the record begins.
        guess: bytes up to the next offset of the index.
        most: bytes from the offset to the end of the file.

    Yields:
        places in the file; to be sent the `HEAD_SIZE` bytes there, or as many as the file has.

    Returns:
        the bytes of the record.

    Raises:
        CorruptRecordError, TruncatedRecordError: as `record_extent`.
    """
    extent = 0
    for heads in range(_MOST_HEADS):
        head = yield offset + extent
        if len(head) < HEAD_SIZE:
            raise cut_short(path, offset, extent + HEAD_SIZE, most)
        magic, word = unpack_head(head)
        flag, size = check_head(magic, word, continuing=heads > 0, path=path, offset=offset + extent)
        extent += framed_length(size)
        # Another record's head behind the guess means that the index is right and this length is wrong.
        if extent > guess and starts_record((yield offset + guess)):
            raise overlap_error(path=path, offset=offset, held=guess)
        if extent > most:
            raise cut_short(path, offset, extent, most)
        if flag in (WHOLE, LAST):
            if (
                extent < guess < _NEAR
                and starts_record((yield offset + guess))
                and not starts_record((yield offset + extent))
            ):
                raise short_record_error(path=path, offset=offset, held=guess, found=extent)
            return extent
    return min(most, _MAX_RECORD_BYTES)


def unlike(data: memoryview, start: IntArray, length: IntArray) -> list[int]:
    """Items whose record, by its own heads, is longer than the bytes that were read of it, or ends where none follows.

    Args:
        data: the bytes of all items.
        start: int64 (n,), place of each item in them; -1 for one without bytes.
        length: int64 (n,), bytes of each item.
    """
    held = np.flatnonzero((start >= 0) & (length >= HEAD_SIZE))
    if not len(held):
        return []
    table = np.frombuffer(data, np.uint8)
    heads = table[start[held, None] + np.arange(HEAD_SIZE)].view("<u4")
    magic, word = heads[:, 0], heads[:, 1]
    framed = (word & MAX_PAYLOAD).astype(np.int64) + HEAD_SIZE + 3 & -4
    flag = word >> 29
    doubtful = ((flag == WHOLE) & (framed != length[held])) | (flag == FIRST)
    return [
        place
        for place in held[(magic == MAGIC) & doubtful].tolist()
        if _ends_elsewhere(data[start[place] : start[place] + length[place]])
    ]


def _ends_elsewhere(data: memoryview) -> bool:
    """Whether the record that begins here does not end here, or before another; False where it breaks the rules."""
    extent = 0
    while len(data) - extent >= HEAD_SIZE:
        magic, word = unpack_head(data, extent)
        try:
            flag, size = check_head(magic, word, continuing=extent > 0, path=None, offset=0)
        except CorruptRecordError:
            return False
        extent += framed_length(size)
        if flag in (WHOLE, LAST):
            break
    else:
        return True
    return extent > len(data) or (extent < len(data) and not starts_record(data[extent : extent + HEAD_SIZE]))
