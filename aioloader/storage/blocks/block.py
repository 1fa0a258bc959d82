"""Blocks in memory: the rows of a part of a file, column by column, and the items of some of their rows. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from aioloader.storage.blocks.item import NULL, head_nbytes, pack_heads

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioloader.foundation.types import Array, IntArray


class ColumnBytes(NamedTuple):
    """Bytes of one column for some rows.

    Attributes:
        data: uint8 (m,), contains the bytes of all rows.
        begin: int64 (n,), where those of each row begin.
        length: int64 (n,), how many they are; `NULL` where there is no value.
    """

    data: Array
    begin: IntArray
    length: IntArray


class Block:
    """Rows of a part of a file, decompressed.

    Args:
        parts: stretches of the rows, in order; each has the same columns.
        faults: reason why a row cannot be a sample, by row.
        nbytes: memory that the block takes.

    Attributes:
        rows: number of rows.
        faults, nbytes: as given.
    """

    def __init__(
        self, parts: Sequence[Sequence[ColumnBytes]], *, faults: Mapping[int, str], nbytes: int
    ) -> None:
        self._parts = parts
        self._ends = np.cumsum([len(part[0].length) for part in parts], dtype=np.int64)
        self.rows = int(self._ends[-1]) if len(parts) else 0
        self.faults = faults
        self.nbytes = nbytes

    def column(self, field: int) -> ColumnBytes:
        """Return a copy of the bytes of a column, those of all parts one behind the other."""
        columns = [part[field] for part in self._parts]
        ends = np.cumsum([0, *[column.data.nbytes for column in columns]])
        return ColumnBytes(
            np.concatenate([column.data for column in columns]),
            np.concatenate([column.begin + end for column, end in zip(columns, ends, strict=False)]),
            np.concatenate([column.length for column in columns]),
        )

    def select(self, rows: IntArray) -> Selection:
        """Return the items of some rows.

        Args:
            rows: int64 (n,), numbers of the rows, 0 <= rows[i] < self.rows.
        """
        numbers = np.searchsorted(self._ends, rows, side="right")
        fields = len(self._parts[0]) if len(self._parts) else 0
        begin = np.empty((len(rows), fields), np.int64)
        length = np.empty((len(rows), fields), np.int64)
        for number in np.unique(numbers).tolist():
            here = numbers == number
            inside = rows[here] - (int(self._ends[number - 1]) if number else 0)
            for field, column in enumerate(self._parts[number]):
                begin[here, field], length[here, field] = column.begin[inside], column.length[inside]
        data = [[column.data for column in part] for part in self._parts]
        return Selection(data, numbers, begin, length)


class Selection:
    """Items of some rows of a block. It refers to the bytes of the block.

    Args:
        data: bytes of each column of each part of the block.
        part: int64 (n,), the part that has each row.
        begin, length: int64 (n, columns), as in `ColumnBytes`.

    Attributes:
        nbytes: int64 (n,), size of each item.
    """

    def __init__(
        self, data: Sequence[Sequence[Array]], part: IntArray, begin: IntArray, length: IntArray
    ) -> None:
        self._data = data
        self._part = part
        self._begin = begin
        self._length = length
        self.nbytes: IntArray = head_nbytes(length.shape[1]) + np.maximum(length, 0).sum(axis=1)

    def __len__(self) -> int:
        return len(self._part)

    def detach(self) -> Selection:
        """Return the same items with a copy of their bytes, so that the block can be freed."""
        start = np.cumsum(self.nbytes) - self.nbytes
        copy = np.empty(int(self.nbytes.sum()), np.uint8)
        self.write(copy, start)
        begin = np.cumsum(np.maximum(self._length, 0), axis=1) - np.maximum(self._length, 0)
        begin += (start + head_nbytes(self._length.shape[1]))[:, None]
        fields = self._length.shape[1]
        return Selection([[copy] * fields], np.zeros(len(self), np.int64), begin, self._length)

    def write(self, out: Array, start: IntArray) -> None:
        """Write the items.

        Args:
            out: uint8, the memory.
            start: int64 (n,), where each item begins in it; an item with a negative place is left out.
        """
        heads = pack_heads(self._length)
        head = heads.shape[1]
        rows = zip(
            start.tolist(), self._part.tolist(), self._begin.tolist(), self._length.tolist(), strict=True
        )
        for number, (at, part, begins, lengths) in enumerate(rows):
            if at < 0:
                continue
            out[at : at + head] = heads[number]
            at += head
            for column, begin, length in zip(self._data[part], begins, lengths, strict=True):
                if length > 0:
                    out[at : at + length] = column[begin : begin + length]
                    at += length


def null_column(rows: int) -> ColumnBytes:
    """Return a column without a value in any row."""
    return ColumnBytes(np.empty(0, np.uint8), np.zeros(rows, np.int64), np.full(rows, NULL, np.int64))
