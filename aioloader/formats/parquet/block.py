"""Layout of nested Python values as bytes: what a worker receives of a column that is neither bytes nor numbers. Pure.

A value is one tag byte and its content, lengths are little-endian uint32. It is read by a loop over the tags, which
makes values of a few built-in types only: nothing of it is ever executed.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass
from datetime import date, datetime, time, timedelta
from decimal import Decimal, InvalidOperation
from enum import Enum
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aioloader.foundation.types import Array, IntArray


_U32: Final = struct.Struct("<I")
_I64: Final = struct.Struct("<q")
_F64: Final = struct.Struct("<d")
_DELTA: Final = struct.Struct("<qqq")
_MOST_DEPTH: Final = 64
_CONSTANTS: Final[dict[bytes, Any]] = {b"N": None, b"T": True, b"F": False}


def pack_value(value: Any) -> bytes:
    """Return the bytes of a value.

    Args:
        value: None, a bool, int, float, str, bytes, date, datetime, time, timedelta or Decimal, or a list, tuple or
            dict of them, nested up to 64 levels deep.

    Raises:
        TypeError: it is, or contains, something else.
        ValueError: it is nested more deeply, or a part of it has 4 GiB or more.
    """
    out = bytearray()
    _put(value, out, 0)
    return bytes(out)


def _put(value: Any, out: bytearray, depth: int) -> None:
    if depth > _MOST_DEPTH:
        raise ValueError(f"the value is nested more than {_MOST_DEPTH} levels deep")
    if value is None or value is True or value is False:
        out += b"N" if value is None else b"T" if value else b"F"
    elif isinstance(value, int):
        if -(1 << 63) <= value < 1 << 63:
            out += b"i" + _I64.pack(value)
        else:
            _put_bytes(b"I", b"%x" % value, out)
    elif isinstance(value, float):
        out += b"f" + _F64.pack(value)
    elif isinstance(value, str):
        _put_bytes(b"s", value.encode("utf-8", "surrogatepass"), out)
    elif isinstance(value, (bytes, bytearray, memoryview)):
        _put_bytes(b"b", bytes(value), out)
    elif isinstance(value, (list, tuple)):
        out += (b"l" if isinstance(value, list) else b"u") + _count(len(value))
        for each in value:
            _put(each, out, depth + 1)
    elif isinstance(value, dict):
        out += b"d" + _count(len(value))
        for key, each in value.items():
            _put(key, out, depth + 1)
            _put(each, out, depth + 1)
    elif isinstance(value, datetime):
        _put_bytes(b"t", value.isoformat().encode(), out)
    elif isinstance(value, date):
        _put_bytes(b"D", value.isoformat().encode(), out)
    elif isinstance(value, time):
        _put_bytes(b"H", value.isoformat().encode(), out)
    elif isinstance(value, timedelta):
        out += b"P" + _DELTA.pack(value.days, value.seconds, value.microseconds)
    elif isinstance(value, Decimal):
        _put_bytes(b"M", str(value).encode(), out)
    else:
        raise TypeError(f"a value of type {type(value).__name__} cannot be passed to a worker")


def _put_bytes(tag: bytes, data: bytes, out: bytearray) -> None:
    out += tag + _count(len(data)) + data


def _count(count: int) -> bytes:
    if count >= 1 << 32:
        raise ValueError(f"a part of the value has {count} elements or bytes, and 2**32 - 1 are the most")
    return _U32.pack(count)


def unpack_value(data: memoryview) -> Any:
    """Return the value of some bytes.

    Args:
        data: a result of `pack_value`; the value is a copy.

    Raises:
        ValueError: it is not.
    """
    reader = _ValueReader(data)
    try:
        value = reader.value(0)
    except (struct.error, ArithmeticError, TypeError) as error:
        raise ValueError(f"damaged value: {error}") from None
    if reader.at != len(data):
        raise ValueError(f"damaged value: {len(data) - reader.at} bytes are behind it")
    return value


def _whole(data: bytes) -> int:
    return int(data, 16)


def _decimal(data: bytes) -> Decimal:
    try:
        return Decimal(data.decode())
    except InvalidOperation:
        raise ValueError("damaged value: not a decimal number") from None


class _ValueReader:
    """Reader of one value.

    Args:
        data: the bytes.

    Attributes:
        at: where the next part begins.
    """

    _TEXTS: Final[dict[bytes, Callable[[bytes], Any]]] = {
        b"I": _whole,
        b"s": lambda data: data.decode("utf-8", "surrogatepass"),
        b"b": bytes,
        b"t": lambda data: datetime.fromisoformat(data.decode()),
        b"D": lambda data: date.fromisoformat(data.decode()),
        b"H": lambda data: time.fromisoformat(data.decode()),
        b"M": _decimal,
    }

    def __init__(self, data: memoryview) -> None:
        self._data = data
        self.at = 0

    def value(self, depth: int) -> Any:
        """Return the value that begins here.

        Raises:
            ValueError, ArithmeticError, TypeError, struct.error: it is damaged.
        """
        if depth > _MOST_DEPTH:
            raise ValueError(f"damaged value: nested more than {_MOST_DEPTH} levels deep")
        tag = self._take(1)
        if tag in _CONSTANTS:
            return _CONSTANTS[tag]
        if tag == b"i":
            return _I64.unpack(self._take(_I64.size))[0]
        if tag == b"f":
            return _F64.unpack(self._take(_F64.size))[0]
        if tag == b"P":
            days, seconds, microseconds = _DELTA.unpack(self._take(_DELTA.size))
            return timedelta(days, seconds, microseconds)
        (count,) = _U32.unpack(self._take(_U32.size))
        convert = self._TEXTS.get(tag)
        if convert is not None:
            return convert(self._take(count))
        # Each element has one byte or more.
        if count > len(self._data) - self.at:
            raise ValueError(f"damaged value: {count} elements are announced")
        if tag == b"d":
            return {self.value(depth + 1): self.value(depth + 1) for _ in range(count)}
        if tag not in (b"l", b"u"):
            raise ValueError(f"damaged value: unknown tag {tag!r}")
        elements = [self.value(depth + 1) for _ in range(count)]
        return elements if tag == b"l" else tuple(elements)

    def _take(self, count: int) -> bytes:
        if count > len(self._data) - self.at:
            raise ValueError("damaged value: it ends early")
        part = bytes(self._data[self.at : self.at + count])
        self.at += count
        return part


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
    """Any other value, as `aioloader.formats.parquet.block` writes it."""


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


NULL: Final = -1
"""Length of a field without a value."""

_WORD: Final = 8
_WORDS: Final = np.dtype("<i8")


def head_nbytes(fields: int) -> int:
    """Return the bytes of the head of an item."""
    return _WORD * (1 + fields)


def pack_heads(lengths: IntArray) -> Array:
    """Return the heads of some items, uint8 (n, bytes of a head).

    Args:
        lengths: int64 (n, fields), bytes of each field or `NULL`.
    """
    heads = np.empty((len(lengths), 1 + lengths.shape[1]), _WORDS)
    heads[:, 0] = lengths.shape[1]
    heads[:, 1:] = lengths
    return heads.view(np.uint8)


def pack_item(fields: Sequence[Any]) -> bytes:
    """Return the item of some fields.

    Args:
        fields: bytes-like objects, or None for a field without a value.
    """
    lengths = [NULL if field is None else len(field) for field in fields]
    head = struct.pack(f"<{1 + len(fields)}q", len(fields), *lengths)
    return b"".join((head, *[field for field in fields if field is not None]))


def split_item(data: memoryview) -> list[memoryview | None]:
    """Return the fields of an item, None for each without a value.

    Args:
        data: the item; the fields are views of it.

    Raises:
        ValueError: it is not an item.
    """
    if len(data) < _WORD:
        raise ValueError(f"an item of {len(data)} bytes has no head")
    count = int.from_bytes(data[:_WORD], "little", signed=True)
    if not 0 <= count <= len(data) // _WORD - 1:
        raise ValueError(f"an item of {len(data)} bytes cannot have {count} fields")
    fields: list[memoryview | None] = []
    at = head_nbytes(count)
    for length in struct.unpack_from(f"<{count}q", data, _WORD):
        if length == NULL:
            fields.append(None)
            continue
        if not 0 <= length <= len(data) - at:
            raise ValueError(f"field {len(fields)} of an item ends {length - len(data) + at} bytes behind it")
        fields.append(data[at : at + length])
        at += length
    if at != len(data):
        raise ValueError(f"an item has {len(data) - at} bytes behind its last field")
    return fields


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
        for number in sorted({*numbers.tolist()}):  # np.unique imports numpy.ma
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
