"""Columns of blocks: their kinds, and the values that a worker decodes from their bytes. Pure."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import Any

import numpy as np

from aioloader.storage.blocks.item import split_item
from aioloader.storage.blocks.values import unpack_value


class ColumnKind(Enum):
    """Kind of a column: how its values are stored in items."""

    BYTES = "bytes"
    """Bytes, such as an encoded image."""
    FILE = "file"
    """Bytes of a file; in Parquet a struct of `bytes` and `path`, of which only the bytes are kept."""
    FILES = "files"
    """Several files in each row: an item of their bytes."""
    TEXT = "text"
    """UTF-8 text."""
    NUMBER = "number"
    """A number of the column's dtype, little-endian; times and durations too."""
    ARRAY = "array"
    """Numbers of the column's dtype, one behind the other."""
    OBJECT = "object"
    """Any other value, as `aioloader.storage.blocks.values` writes it."""


@dataclass(frozen=True)
class Column:
    """One column of a table.

    Attributes:
        name: its name.
        kind: how its values are stored.
        dtype: numpy name of the dtype of numbers and arrays, little-endian; else None.
    """

    name: str
    kind: ColumnKind
    dtype: str | None = None

    def value(self, data: memoryview) -> Any:
        """Return the value of a row: a memoryview of bytes, a list of them, a str, a number, an array or an object.

        Args:
            data: the bytes of the field; not kept, except as views.

        Raises:
            ValueError: the bytes are not a value of this column.
        """
        if self.kind in (ColumnKind.BYTES, ColumnKind.FILE):
            return data
        if self.kind is ColumnKind.FILES:
            return split_item(data)
        if self.kind is ColumnKind.TEXT:
            return str(data, "utf-8")
        if self.kind is ColumnKind.OBJECT:
            return unpack_value(data)
        # A copy in separate memory, aligned.
        values = np.frombuffer(data, self.dtype).copy()
        if self.kind is ColumnKind.ARRAY:
            return values
        if len(values) != 1:
            raise ValueError(f"the column {self.name!r} has {len(values)} numbers in one row")
        return values[0]


def common_column(one: Column, other: Column) -> Column | None:
    """Return the column that has the values of two: that of the wider whole numbers or fractions; None if none has."""
    if one == other:
        return one
    if one.name != other.name or one.kind is not other.kind or one.dtype is None or other.dtype is None:
        return None
    dtypes = [np.dtype(one.dtype), np.dtype(other.dtype)]
    if not all(each.kind in "iuf" for each in dtypes):
        return None
    found = np.result_type(*dtypes)
    fractions = {each.kind == "f" for each in (*dtypes, found)}
    if len(fractions) > 1:  # of int8 and float32; and of int64 and uint64 the common dtype is float64
        return None
    return Column(one.name, one.kind, found.str)
