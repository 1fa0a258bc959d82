"""Tests of the wire format of protobuf: integers, lengths and unknown fields, valid and damaged."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.formats.tfrecord.example import MessageFault, extent, skip_field, varint
from tests.aioloader.formats import tfrecords
from tests.cases import with_cases

GROUP = {number: (bytes([number << 3 | 3]), bytes([number << 3 | 4])) for number in (1, 2)}


@given(st.integers(0, (1 << 64) - 1), st.integers(1, 10), st.binary(max_size=3))
def test_integers_have_their_value_in_any_length(value: int, nbytes: int, rest: bytes) -> None:
    data = tfrecords.varint(value, nbytes)
    size = len(data)
    assert varint(data + rest, 0, size) == (value, size)
    assert varint(b"\xff" + data, 1, size + 1) == (value, size + 1)
    with pytest.raises(MessageFault, match="ends behind its message"):
        varint(data + rest, 0, size - 1)
    with pytest.raises(IndexError):
        varint(data[:-1], 0, size)


def test_bits_above_the_64th_are_dropped() -> None:
    assert varint(b"\xff" * 9 + b"\x7f", 0, 10) == ((1 << 64) - 1, 10)


@pytest.mark.parametrize("data", [b"\x80" * 10 + b"\0", b"\xff" * 20])
def test_an_integer_of_more_than_ten_bytes_is_a_fault(data: bytes) -> None:
    with pytest.raises(MessageFault, match="more than 10 bytes"):
        varint(data, 0, len(data))


def test_a_length_is_returned_as_an_end() -> None:
    assert extent(b"\x05abcde", 0, 6) == (6, 1)
    assert extent(b"\xff\x01a", 0, 3) == (257, 2)  # the caller compares it


@pytest.mark.parametrize(
    "data",
    [
        b"\x08\x96\x01",
        b"\x09" + bytes(8),
        b"\x0a\x03abc",
        b"\x0d" + bytes(4),
        b"".join(GROUP[1]),
        GROUP[1][0] + GROUP[2][0] + b"\x08\x01" + GROUP[2][1] + b"\x0a\x01a" + GROUP[1][1],
        b"\xf8\xff\xff\xff\x0f\x01",  # the largest number of a field
    ],
)
def test_unknown_fields_are_skipped(data: bytes) -> None:
    assert skip_field(data + b"rest", 0, len(data) + 4) == len(data)
    for size in range(len(data)):
        with pytest.raises(MessageFault):
            skip_field(data, 0, size)
        if data[0] & 7 in (0, 3):  # the ends of others are known before their bytes are there
            with pytest.raises(IndexError):
                skip_field(data[:size], 0, len(data))


@with_cases(
    ("data", "text"),
    [
        (b"\x00\x01", "invalid number"),
        (b"\x80\x80\x80\x80\x10\x01", "invalid number"),
        (b"\x0e", "invalid type"),
        (b"\x0f", "invalid type"),
        (GROUP[1][1], "has not begun"),
        (GROUP[1][0] + GROUP[2][1], "has not begun"),
        (GROUP[1][0] * 101 + GROUP[1][1] * 101, "nested too deeply"),
        (b"\x0a\x05abc", "ends behind its message"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01", "ends behind its message"),
        (b"\x09abc", "ends behind its message"),
    ],
)
def test_damaged_fields_are_faults(data: bytes, text: str) -> None:
    with pytest.raises(MessageFault, match=text) as caught:
        skip_field(data, 0, len(data))
    assert caught.value.reason == str(caught.value)
    assert 0 <= caught.value.at <= len(data)


def test_groups_may_be_nested_a_hundred_deep() -> None:
    data = GROUP[1][0] * 100 + GROUP[1][1] * 100
    assert skip_field(data, 0, len(data)) == 200


@given(st.binary(max_size=60))
def test_any_bytes_are_a_field_or_a_fault(data: bytes) -> None:
    try:
        assert 0 < skip_field(data, 0, len(data)) <= len(data)
    except MessageFault as fault:
        assert 0 <= fault.at <= len(data)
