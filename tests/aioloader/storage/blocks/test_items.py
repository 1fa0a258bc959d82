"""Tests of the bytes in which a row travels to a worker: items, and nested Python values."""

from __future__ import annotations

import datetime
from decimal import Decimal
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.formats.parquet.block import (
    NULL,
    Column,
    ColumnKind,
    head_nbytes,
    pack_heads,
    pack_item,
    pack_value,
    split_item,
    unpack_value,
)
from tests.cases import with_cases

# --- items ---


@given(st.lists(st.none() | st.binary(max_size=40), max_size=6))
def test_an_item_has_the_fields_it_was_made_of(fields: list[bytes | None]) -> None:
    found = split_item(memoryview(pack_item(fields)))
    assert [None if each is None else bytes(each) for each in found] == fields


@given(st.lists(st.lists(st.integers(NULL, 1 << 40), min_size=2, max_size=2), max_size=5))
def test_heads_made_together_are_those_of_the_items(lengths: list[list[int]]) -> None:
    heads = pack_heads(np.array(lengths, np.int64).reshape(-1, 2))
    assert heads.shape == (len(lengths), head_nbytes(2))
    for head, row in zip(heads, lengths, strict=True):
        assert np.frombuffer(head.tobytes(), "<i8").tolist() == [2, *row]


@given(st.binary(max_size=80))
def test_bytes_that_are_no_item_are_refused(data: bytes) -> None:
    try:
        fields = split_item(memoryview(data))
    except ValueError:
        return
    assert pack_item(fields) == data


@with_cases(
    ("data", "text"),
    [
        (b"", "no head"),
        (b"1234567", "no head"),
        ((-1).to_bytes(8, "little", signed=True), "cannot have -1 fields"),
        ((2).to_bytes(8, "little") + bytes(8), "cannot have 2 fields"),
        ((1 << 62).to_bytes(8, "little"), "cannot have"),
        (pack_item([b"abc"])[:-1], "ends 1 bytes behind"),
        (pack_item([b"abc"]) + b"x", "1 bytes behind its last field"),
        ((1).to_bytes(8, "little") + (-2).to_bytes(8, "little", signed=True), "behind"),
    ],
)
def test_the_fault_of_an_item_is_named(data: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        split_item(memoryview(data))


# --- nested values ---

SCALARS = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_nan=False)
    | st.text(max_size=8)
    | st.binary(max_size=8)
    | st.datetimes(timezones=st.none() | st.just(datetime.UTC))
    | st.dates()
    | st.times()
    | st.timedeltas()
    | st.decimals(allow_nan=False)
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(st.text(max_size=4), inner, max_size=4)
        | st.lists(inner, max_size=3).map(tuple)
    ),
    max_leaves=6,
)


@given(VALUES)
def test_a_value_comes_back(value: Any) -> None:
    found = unpack_value(memoryview(pack_value(value)))
    assert found == value
    assert type(found) is type(value)


def test_not_a_number_comes_back() -> None:
    assert unpack_value(memoryview(pack_value([float("nan")])))[0] != 0
    assert Decimal.is_nan(unpack_value(memoryview(pack_value(Decimal("NaN")))))


@given(VALUES, st.data())
def test_a_damaged_value_is_another_value_or_a_value_error(value: Any, data: st.DataObject) -> None:
    packed = bytearray(pack_value(value))
    place = data.draw(st.integers(0, len(packed) - 1))
    packed[place] = data.draw(st.integers(0, 255))
    packed = packed[: data.draw(st.integers(0, len(packed)))]
    try:
        unpack_value(memoryview(packed))
    except ValueError:
        return


@with_cases(
    ("data", "text"),
    [
        (b"", "ends early"),
        (b"x", "ends early"),
        (b"x" + bytes(4), "unknown tag"),
        (b"NN", "1 bytes are behind it"),
        (b"l\xff\xff\xff\xff", "elements are announced"),
        (b"l\1\0\0\0" * 80 + b"N", "nested"),
        (b"d\1\0\0\0l\0\0\0\0N", "damaged"),
        (b"M\1\0\0\0x", "not a decimal"),
        (b"P" + b"\xff" * 7 + b"\x7f" + bytes(16), "damaged"),
    ],
)
def test_the_fault_of_a_value_is_named(data: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        unpack_value(memoryview(data))


def test_what_cannot_travel_is_refused() -> None:
    with pytest.raises(TypeError, match="complex"):
        pack_value([1j])
    deep: Any = None
    for _ in range(70):
        deep = [deep]
    with pytest.raises(ValueError, match="nested"):
        pack_value(deep)


# --- columns ---


@pytest.mark.parametrize(
    ("column", "data", "expected"),
    [
        (Column("a", ColumnKind.TEXT), "ä".encode(), "ä"),
        (Column("a", ColumnKind.NUMBER, "<i4"), b"\7\0\0\0", np.int32(7)),
        (Column("a", ColumnKind.NUMBER, "|b1"), b"\1", np.True_),
        (Column("a", ColumnKind.NUMBER, "<M8[D]"), bytes(8), np.datetime64("1970-01-01")),
        (Column("a", ColumnKind.OBJECT), pack_value({"b": [1]}), {"b": [1]}),
    ],
)
def test_a_column_makes_a_value_of_its_bytes(column: Column, data: bytes, expected: Any) -> None:
    found = column.value(memoryview(data))
    assert found == expected
    assert type(found) is type(expected)


@pytest.mark.parametrize("count", [0, 1, 5])
def test_an_array_is_a_copy(count: int) -> None:
    data = bytearray(np.arange(count, dtype="<f4").tobytes())
    found = Column("a", ColumnKind.ARRAY, "<f4").value(memoryview(data))
    data[:] = bytes(len(data))
    assert found.tolist() == list(range(count))
    assert found.dtype == np.float32
    assert found.flags.writeable


@pytest.mark.parametrize(
    "column",
    [Column("a", ColumnKind.NUMBER, "<i4"), Column("a", ColumnKind.TEXT), Column("a", ColumnKind.FILES)],
)
def test_bytes_of_another_column_are_refused(column: Column) -> None:
    with pytest.raises(ValueError, match=r"."):
        column.value(memoryview(b"\xff" * 12))
