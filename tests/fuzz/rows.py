"""Target: what a worker receives of a block source, and the page headers that are checked before pyarrow gets them.

The first byte of an input selects the reader: an item, a nested value, or the pages of a column chunk.
"""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

from aioloader.formats.parquet.block import (
    Column,
    ColumnKind,
    pack_item,
    pack_value,
    split_item,
    unpack_value,
)
from aioloader.formats.parquet.pages import chunk_sizes
from tests.fuzz.mutation import change
from tests.fuzz.target import Draw, Finding, corpus_of

_ITEM, _VALUE, _PAGES = range(3)
_PIECES = (
    bytes(8),
    b"\xff" * 8,
    b"\1" + bytes(7),
    b"\xfe" + b"\xff" * 7,
    b"l\xff\xff\xff\xff",
    b"d\1\0\0\0",
    b"\x15\x00",
    b"\x2c\x15\x06",
    b"\x1c",
    b"\x19\xf5\xff\xff\x7f",
    b"\xff\xff\xff\xff\x0f",
)
_COLUMNS = (
    Column("bytes", ColumnKind.BYTES),
    Column("files", ColumnKind.FILES),
    Column("text", ColumnKind.TEXT),
    Column("number", ColumnKind.NUMBER, "<i4"),
    Column("array", ColumnKind.ARRAY, "<f8"),
    Column("object", ColumnKind.OBJECT),
)
_VALUES: tuple[Any, ...] = (
    None,
    True,
    -1,
    1 << 70,
    2.5,
    "text \ud800",
    b"bytes",
    datetime.datetime(2024, 1, 2, 3, 4, 5, tzinfo=datetime.UTC),
    datetime.date(2024, 1, 2),
    datetime.time(3, 4),
    datetime.timedelta(5, 6, 7),
    Decimal("1.50"),
)


def _varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def page(kind: int, decoded: int, content: bytes, values: int, encoding: int) -> bytes:
    """Return a page with its header."""
    numbers = [_varint(2 * number) for number in (kind, decoded, len(content))]
    inner = b"\x15" + _varint(2 * values) + b"\x15" + _varint(2 * encoding) + b"\0"
    field = {0: b"\x2c", 2: b"\x4c"}[kind]
    return b"".join(b"\x15" + number for number in numbers) + field + inner + b"\0" + content


class Rows:
    """Items, values and page headers: each is read as it was written, or refused with a ValueError."""

    past = frozenset(("item", "value", "pages"))

    def __init__(self) -> None:
        self._kept = [path.read_bytes() for path in corpus_of("rows")]

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        kind = int(draw() * 3)
        if self._kept and draw() < 0.1:
            data = bytearray(self._kept[int(draw() * len(self._kept))])
        elif kind == _ITEM:
            fields = [self._field(draw) for _ in range(int(draw() * 5))]
            data = bytearray(bytes([_ITEM]) + pack_item(fields))
        elif kind == _VALUE:
            data = bytearray(bytes([_VALUE]) + pack_value(self._value(draw, 0)))
        else:
            data = bytearray(bytes([_PAGES]) + page(2, 90, b"d" * int(draw() * 9), 4, 0))
            for _ in range(int(draw() * 4)):
                data += page(
                    0, int(draw() * 1e6), b"p" * int(draw() * 40), int(draw() * 300), int(draw() * 9)
                )
        while draw() < 0.45:
            change(data, 1, draw, _PIECES)
        return bytes(data)

    @staticmethod
    def _field(draw: Draw) -> bytes | None:
        kind = int(draw() * 5)
        return (None, b"", b"\xff\xd8image" * 3, pack_value([1, {"a": None}]), pack_item([b"a", None]))[kind]

    def _value(self, draw: Draw, depth: int) -> Any:
        if depth > 3 or draw() < 0.5:
            return _VALUES[int(draw() * len(_VALUES))]
        parts = [self._value(draw, depth + 1) for _ in range(int(draw() * 4))]
        kind = int(draw() * 3)
        return (
            parts
            if kind == 0
            else tuple(parts)
            if kind == 1
            else {str(n): part for n, part in enumerate(parts)}
        )

    def check(self, data: bytes) -> str:
        """See `Target.check`."""
        kind, body = (data[0] % 3, memoryview(data)[1:]) if data else (_ITEM, memoryview(b""))
        try:
            if kind == _ITEM:
                return self._check_item(body)
            if kind == _VALUE:
                return self._check_value(body)
            sizes = chunk_sizes(body, 1 << 20)
            if min(sizes) < 0 or sizes.largest_value > sizes.decoded:
                raise Finding(f"impossible sizes {sizes}")
            return "pages"
        except ValueError:
            return "refused"

    @staticmethod
    def _check_item(body: memoryview) -> str:
        fields = split_item(body)
        if pack_item(fields) != body:
            raise Finding("the fields of an item are not all of it")
        for field in fields:
            for column in _COLUMNS if field is not None else ():
                try:
                    # The condition of the inner loop excludes None, which the type of `field` does not tell.
                    column.value(field)  # type: ignore[arg-type]
                except ValueError:
                    continue
        return "item"

    @staticmethod
    def _check_value(body: memoryview) -> str:
        value = unpack_value(body)
        if repr(unpack_value(memoryview(pack_value(value)))) != repr(value):
            raise Finding(f"{value!r} does not come back")
        return "value"
