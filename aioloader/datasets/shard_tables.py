"""Tables of the samples of shards: where each sample is, and its key."""

from __future__ import annotations

from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from aioloader.errors import SampleFormatError
from aioloader.foundation.types import Array, IntArray, Spans
from aioloader.storage.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

_MOST_DIGITS = 18


class KeyTable(Protocol):
    """Keys of the samples of a shard."""

    def key_at(self, row: int) -> str:
        """Return the key of a sample, by its number in the shard."""
        ...

    def row_of(self, key: str) -> int | None:
        """Return the number that the first sample with a key has in the shard, if there is one; else None."""
        ...


class NumberKeys:
    """Numbers of the samples in their shard: the keys in a format that has none."""

    def key_at(self, row: int) -> str:
        return str(row)

    def row_of(self, key: str) -> int | None:
        # A key is a number as `key_at` spells it: without a sign, and without zeros in front.
        if not key.isascii() or not key.isdigit() or len(key) > _MOST_DIGITS:
            return None
        row = int(key)
        return row if str(row) == key else None


class TextKeys:
    """Keys of samples, stored one behind the other.

    Args:
        text: uint8 (m,), all keys in UTF-8.
        ends: int64 (n,), where each key ends in `text`.
    """

    def __init__(self, text: Array, ends: IntArray) -> None:
        self._text = text
        self._ends = ends

    def key_at(self, row: int) -> str:
        begin = int(self._ends[row - 1]) if row else 0
        return self._text[begin : int(self._ends[row])].tobytes().decode("utf-8", "surrogateescape")

    def row_of(self, key: str) -> int | None:
        try:
            wanted = key.encode("utf-8", "surrogateescape")
        except UnicodeEncodeError:
            return None
        fits = (np.diff(self._ends, prepend=0) == len(wanted)) & (self._ends >= len(wanted))
        rows: IntArray = np.flatnonzero(fits & (self._ends <= len(self._text)))
        # From the last byte on, because keys often have a common beginning.
        for place, byte in enumerate(reversed(wanted), 1):
            rows = rows[self._text[self._ends[rows] - place] == byte]
        return int(rows[0]) if len(rows) else None


@dataclass(frozen=True, eq=False, kw_only=True)
class ShardTable:
    """Samples of one shard.

    Attributes:
        path: the shard, or its URL.
        nbytes: its size in bytes.
        offset: int64 (n,), where each sample begins.
        length: int64 (n,), bytes of each sample.
        keys: keys of the samples.
        columns: further numbers of the samples, by name: (n, ...) each, or tables that they refer to.

    Raises:
        SampleFormatError: a sample ends behind the shard.
    """

    path: str
    nbytes: int
    offset: IntArray
    length: IntArray
    keys: KeyTable
    columns: Mapping[str, Array] = field(default_factory=dict)

    def __post_init__(self) -> None:
        outside = np.flatnonzero(
            (self.offset < 0) | (self.length < 0) | (self.offset > self.nbytes - self.length)
        )
        if len(outside):
            row = int(outside[0])
            raise SampleFormatError(
                "the index has a sample that ends behind the file; delete the index, or make it again with "
                "`aioloader index FILE`",
                path=redact_url(self.path),
                offset=int(self.offset[row]),
                key=self.keys.key_at(row),
                expected=f"{int(self.length[row])} bytes",
                found=f"{max(0, self.nbytes - int(self.offset[row]))} bytes",
            )

    @property
    def read_length(self) -> IntArray:
        """Return the bytes of each sample as it is read, int64 (n,): more than in its span if it refers to others."""
        return self.length

    def __len__(self) -> int:
        return len(self.offset)

    def row_of(self, key: str) -> int | None:
        """Return the number in the shard of the first sample with a key; None if no sample has it."""
        row = self.keys.row_of(key)
        return row if row is not None and row < len(self) else None


NAMED = 1 << 61
"""Bit of an index that names a shard and a row of it; below it are the numbers of both."""
_ROW_BITS = 40
_ROWS = (1 << _ROW_BITS) - 1


def first_indices(shards: int) -> IntArray:
    """Return indices that name the first row of each shard, which do not depend on the sizes of others, int64 (n,)."""
    return NAMED + (np.arange(shards, dtype=np.int64) << _ROW_BITS)


def are_named(indices: IntArray) -> bool:
    """Return whether indices name shards and rows, as those that follow one of `first_indices` do."""
    return len(indices) > 0 and int(indices[0]) >= NAMED


def named_rows(indices: IntArray) -> tuple[IntArray, IntArray]:
    """Return the shards and the rows that indices name."""
    return (indices - NAMED) >> _ROW_BITS, indices & _ROWS


class ShardTables:
    """Tables of several concatenated shards.

    Args:
        tables: of the shards, in order.

    Attributes:
        tables: as given.
        starts: int64 (shards + 1,), samples of all shards before each one.
        complete: no further shards follow.
    """

    complete = True

    def __init__(self, tables: Sequence[ShardTable]) -> None:
        self.tables = tuple(tables)
        self.starts = np.cumsum([0, *[len(table) for table in tables]])
        self._joined: dict[str, Array] = {}

    @cached_property
    def offset(self) -> IntArray:
        """Return where each sample begins in its shard, int64 (n,)."""
        return self._concatenated([table.offset for table in self.tables], np.int64)

    @cached_property
    def length(self) -> IntArray:
        """Return the bytes of each sample as it is read, int64 (n,)."""
        return self._concatenated([table.read_length for table in self.tables], np.int64)

    @staticmethod
    def _concatenated(parts: Sequence[Array], dtype: Any = None) -> Array:
        if not parts:
            return np.empty(0, dtype)
        return parts[0] if len(parts) == 1 else np.concatenate(parts)

    def __len__(self) -> int:
        return int(self.starts[-1])

    def wait_for(self, count: int | None = None) -> int:
        """Return the number of samples, which are all known; see `GrowingTables`."""
        return len(self)

    def table(self, number: int) -> ShardTable:
        """Return the table of a shard."""
        return self.tables[number]

    def counted(self, indices: IntArray) -> IntArray:
        """Return indices that count samples, also for those that name a shard and a row (`first_indices`)."""
        if not are_named(indices):
            return indices
        files, rows = named_rows(indices)
        found: IntArray = self.starts[files] + rows
        return found

    def column_at(self, name: str, indices: IntArray) -> Array:
        """Return a column of some samples, (n, ...)."""
        found: Array = self.column(name)[self.counted(indices)]
        return found

    def column(self, name: str) -> Array:
        """Return a column of all shards, (n, ...), one shard behind the other."""
        if name not in self._joined:
            self._joined[name] = self._concatenated([table.columns[name] for table in self.tables])
        return self._joined[name]

    def rows(self, indices: IntArray) -> tuple[IntArray, IntArray]:
        """Return the number of the shard of each sample, and the sample's number in it."""
        if are_named(indices):
            return named_rows(indices)
        files: IntArray = np.searchsorted(self.starts, indices, side="right") - 1
        return files, indices - self.starts[files]

    def locate(self, index: int) -> tuple[int, int]:
        """Return the number of the shard of a sample, and the sample's number in it."""
        if index >= NAMED:
            return (index - NAMED) >> _ROW_BITS, index & _ROWS
        file = int(np.searchsorted(self.starts, index, side="right")) - 1
        return file, index - int(self.starts[file])

    def spans(self, indices: IntArray) -> Spans:
        """Return the spans of samples."""
        indices = self.counted(indices)
        if len(self.tables) == 1:
            file = np.zeros(len(indices), np.int64)
        else:
            file = np.searchsorted(self.starts, indices, side="right").astype(np.int64) - 1
        return Spans(file, self.offset[indices], self.length[indices])
