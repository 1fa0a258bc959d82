"""The headers of many records of a file, without the images behind them.

A header is 32 bytes, and a read of it fetches a page or two. So millions take seconds from memory or a good disk, and
minutes from a bad one: the reads are spread over the file in such an order that they can stop at any time and what was
seen is an even sample.
"""

from __future__ import annotations

import os
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.storage.descriptors import open_regular
from recordio import MAGIC

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader._types import Array, IntArray

__all__ = ("HEADER_NBYTES", "RecordHeads", "evenly", "read_heads")

HEADER_NBYTES = 24
"""Bytes of an image record's header without a label vector."""

_HEAD = np.dtype(
    [
        ("magic", "<u4"),
        ("word", "<u4"),
        ("flag", "<u4"),
        ("label", "<f4"),
        ("id", "<u8"),
        ("id2", "<u8"),
    ]
)
_MOST_PASSES = 64
_BETWEEN_TICKS = 4096
_MOST_SAMPLED = 1 << 22  # some hundred bytes of memory each


class RecordHeads:
    """What stands at the beginning of some records.

    Args:
        numbers: int64 (n,), which of the offsets given were looked at, ascending.
        table: their first 32 bytes as a structured array.

    Attributes:
        numbers: the same.
        sound: bool (n,), whether a record begins there.
        split: bool (n,), whether it is stored in several parts.
        nbytes: int64 (n,), bytes of its first part without the framing: of the payload, unless it is split.
        flag: int64 (n,), number of labels in a vector; 0 for a scalar label.
        label: float32 (n,), the scalar label.
        id: uint64 (n,).
        packed: bool (n,), whether the payload is long enough for the header that this would be.
    """

    def __init__(self, numbers: IntArray, table: Array) -> None:
        self.numbers = numbers
        word = table["word"].astype(np.int64)
        self.sound: Array = (table["magic"] == MAGIC) & (word >> 29 <= 1)
        self.split: Array = word >> 29 == 1
        self.nbytes: IntArray = word & 0x1FFFFFFF
        self.flag: IntArray = table["flag"].astype(np.int64)
        self.label: Array = table["label"]
        self.id: Array = table["id"]
        long_enough = np.where(self.split, HEADER_NBYTES, HEADER_NBYTES + 4 * self.flag) <= self.nbytes
        self.packed: Array = self.sound & long_enough

    def __len__(self) -> int:
        return len(self.numbers)

    @property
    def bare(self) -> Array:
        """bool (n,), whether it is a header with a label vector, and nothing else."""
        bare: Array = (
            self.packed & ~self.split & (self.flag > 0) & (self.nbytes == HEADER_NBYTES + 4 * self.flag)
        )
        return bare


def read_heads(
    path: str,
    offsets: IntArray,
    *,
    seconds: float | None = None,
    tick: Callable[[int], Any] | None = None,
) -> RecordHeads:
    """Read the headers of records.

    Args:
        path: the record file.
        offsets: int64 (n,), where the records begin; ascending is fastest.
        seconds: after so long an even sample of them will do, and of more than four million in any case; None: all
            are read.
        tick: called now and then with the number of headers read so far.

    Returns:
        The headers of all, or of a sample.

    Raises:
        OSError: the file cannot be read.
    """
    count = len(offsets)
    begun = monotonic()
    passes = 1 if seconds is None else min(_MOST_PASSES, max(1, count // _BETWEEN_TICKS))
    table = np.empty(count if seconds is None else min(count, _MOST_SAMPLED), _HEAD)
    looked = np.empty(len(table), np.int64)
    done = 0
    fd = open_regular(path)
    try:
        for first in _spread(passes):
            numbers = np.arange(first, count, passes, dtype=np.int64)
            if (
                seconds is not None
                and done
                and (done + len(numbers) > len(table) or monotonic() - begun > seconds)
            ):
                break
            for low in range(0, len(numbers), _BETWEEN_TICKS):
                part = numbers[low : low + _BETWEEN_TICKS]
                block = slice(done, done + len(part))
                looked[block] = part
                table[block] = np.frombuffer(
                    b"".join([_read(fd, offset) for offset in offsets[part].tolist()]), _HEAD
                )
                done += len(part)
                if tick is not None:
                    tick(done)
    finally:
        os.close(fd)
    looked, table = looked[:done], table[:done]
    if passes > 1:
        order = np.argsort(looked, kind="stable")
        looked, table = looked[order], table[order]
    return RecordHeads(looked, table)


def _read(fd: int, offset: int) -> bytes:
    if offset < 0:
        return _NOTHING
    head = os.pread(fd, len(_NOTHING), offset)
    return head if len(head) == len(_NOTHING) else head.ljust(len(_NOTHING), b"\0")


_NOTHING = bytes(_HEAD.itemsize)


def _spread(count: int) -> list[int]:
    """0 to count - 1 in such an order that however many are taken, they lie about as far from each other."""
    bits = max(1, (count - 1).bit_length())
    turned = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits))
    return [number for number in turned if number < count]


def evenly(count: int, most: int) -> IntArray:
    """Up to `most` of the numbers 0 to count - 1, evenly spread, the first and the last among them; int64."""
    if count <= most:
        return np.arange(count, dtype=np.int64)
    return np.unique(np.linspace(0, count - 1, most).astype(np.int64))
