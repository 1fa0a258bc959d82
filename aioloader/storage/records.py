"""Lengths of records: a record's own headers contain it, the offsets of an index only allow a guess.

A wrong line of an index may point into a record; the guess for the record before it is then too short. That record is
read again with its real length, unless another record's header is found where the guess ends: then the index is right
and the record's own length is damaged. The length is also damaged if the record ends before the guess does, no header
follows it, and one is found where the guess ends.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

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
    middle_run,
    overlap_error,
    short_record_error,
    starts_record,
    unpack_head,
)
from recordio.errors import CorruptIndexError, CorruptRecordError, ShortReadError, TruncatedRecordError

if TYPE_CHECKING:
    from collections.abc import Generator, Sequence

    from aioloader.foundation.types import Array, IntArray, Spans


TRUSTED_SPAN_BYTES = 8 << 20
"""The span of an index line is a guess. If it is larger than this, or too small for a record, the record's own headers
are read first, so that an index with few lines does not make the loader read everything between them."""

# Enough for any record that does not consist of magic words; beyond it the format's own limit applies.
_MOST_HEADS = 4096
_UNREADABLE = -(1 << 62)
# With an index of few lines, the end of a guess farther away than this says nothing about the record.
_NEAR = 8 << 20
_MAX_RECORD_BYTES = framed_length(MAX_PAYLOAD)


def doubtful(length: IntArray) -> Array:
    """Mark lengths, int64 (n,), that cannot be a record's, or are too large to be read unchecked; return bool (n,)."""
    return (length > TRUSTED_SPAN_BYTES) | (length < HEAD_SIZE)


def cut_short(path: str, offset: int, needed: int, held: int) -> TruncatedRecordError:
    """Return the error for a record that needs more bytes than the file has from its offset on."""
    return TruncatedRecordError(
        "the file ends inside this record; it may have been cut, or its index belongs to another file",
        path=path,
        offset=offset,
        expected=f"{needed} bytes",
        found=f"{max(held, 0)} bytes",
    )


def exact_shortage(path: str, offset: int, needed: int, held: int) -> ShortReadError:
    """Return the error for a sample of a known length that needs more bytes than the file has from its offset on."""
    return ShortReadError(
        "the file ends inside this sample; it was cut or replaced after its index had been read",
        path=path,
        offset=offset,
        expected=needed,
        found=max(held, 0),
    )


def unreadable_line(line: IntArray) -> IntArray:
    """Return offsets that represent unreadable lines of an index, counted from 0; no index contains such offsets."""
    return _UNREADABLE - line


def check_spans(
    spans: Spans, paths: Sequence[str], failures: list[tuple[int, BaseException]]
) -> list[tuple[int, int, int, int]]:
    """Check the spans that an index implies.

    Args:
        spans: of records.
        paths: of the files.
        failures: receives (place in the batch, error) of spans that cannot contain a record.

    Returns:
        (place in the batch, file, offset, length) of each span whose real length is to be read from the record.
    """
    bad = (spans.offset < 0) | (spans.length <= 0)
    for place in np.flatnonzero(bad).tolist():
        path, offset = paths[int(spans.file[place])], int(spans.offset[place])
        failures.append((place, _no_record(path, offset, int(spans.length[place]))))
    return [
        (place, int(spans.file[place]), int(spans.offset[place]), int(spans.length[place]))
        for place in np.flatnonzero(doubtful(spans.length) & ~bad).tolist()
    ]


def _no_record(path: str, offset: int, length: int) -> CorruptRecordError | CorruptIndexError:
    if offset <= _UNREADABLE:
        return CorruptIndexError(
            f"this line of the index of {path} cannot be read; `aioloader verify FILE` reports its errors, "
            "`aioloader repair SRC DST` writes a copy with an index of every readable record",
            line=_UNREADABLE - offset + 1,
        )
    return TruncatedRecordError(
        "the index has an offset at which the file has no record; rebuild it with `python -m recordio index`",
        path=path,
        offset=offset,
        expected=f"{HEAD_SIZE} bytes or more",
        found=f"{max(length, 0)} bytes",
    )


def record_extent(fd: int, path: str, offset: int, guess: int) -> int:
    """Return the bytes of the record at `offset` of an open file, headers and padding included.

    Args:
        fd: the file.
        path: its name, for errors.
        offset: where the record begins.
        guess: bytes up to the next offset of the index.

    Raises:
        OSError: the file cannot be read.
        CorruptRecordError: there is no record, or its length is damaged.
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
    """Find the bytes of a record in a file of any kind; the caller reads the headers. See `record_extent`.

    Args:
        path: the file, for errors.
        offset: where the record begins.
        guess: bytes up to the next offset of the index.
        most: bytes from the offset to the end of the file.

    Yields:
        offsets in the file; the caller sends the `HEAD_SIZE` bytes there, or fewer at the end of the file.

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
        # Another record's header behind the guess means that the index is right and this length is wrong.
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


def wrong_length(data: memoryview, start: IntArray, length: IntArray) -> list[int]:
    """Find items whose record is longer than the bytes that were read, or ends where no other record follows.

    Args:
        data: the bytes of all items.
        start: int64 (n,), place of each item in `data`; -1 for one without bytes.
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
    """Return whether a record ends neither with the data nor before another record; False if it is corrupt."""
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
        extent, _ = middle_run(data, extent)
    else:
        return True
    return extent > len(data) or (extent < len(data) and not starts_record(data[extent : extent + HEAD_SIZE]))
