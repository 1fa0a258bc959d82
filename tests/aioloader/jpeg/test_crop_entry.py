"""Entries of a crop index: their layout, their checks, the checksum."""

from __future__ import annotations

import random
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.jpeg.crop_entry import VERSION, CropEntryError, check_entry, checksum
from tests.aioloader.jpeg.entries import golden
from tests.cases import with_cases

FILES = golden()
NAMES = [name for name, _, _ in FILES]


@with_cases(("name", "data", "entry"), FILES, ids=NAMES)
def test_a_changed_bit_of_the_entry_or_of_the_image_is_noticed(name, data, entry):
    rng = random.Random(name)
    check_entry(entry, data)
    for number in range(60):
        edited = bytearray((entry, data)[number % 2])
        edited[rng.randrange(len(edited))] ^= 1 << rng.randrange(8)
        with pytest.raises(CropEntryError) as caught:
            check_entry(*((entry, bytes(edited)) if number % 2 else (edited, data)))
        assert caught.value.reason == ("of other bytes" if number % 2 else "damaged")


@with_cases("size", [0, 1, 3, 4, 100, 300])
def test_a_truncated_entry_is_damaged(size):
    _, data, entry = FILES[0]
    with pytest.raises(CropEntryError, match="damaged"):
        check_entry(entry[:size], data)


def test_another_version_is_refused():
    _, data, entry = FILES[0]
    body = bytes((VERSION + 1,)) + entry[1:-4]
    with pytest.raises(CropEntryError, match="of another version"):
        check_entry(body + zlib.crc32(body).to_bytes(4, "little"), data)


def test_short_data_has_its_crc_as_checksum():
    data = random.Random(0).randbytes(16_383)
    assert checksum(data) == checksum(memoryview(data)) == zlib.crc32(data)


@given(
    nbytes=st.integers(16_384, 60_000),
    place=st.integers(0, 1 << 30),
    bit=st.integers(0, 7),
    seed=st.integers(0, 3),
)
def test_the_checksum_notices_a_changed_bit(nbytes, place, bit, seed):
    data = bytearray(random.Random(seed).randbytes(nbytes))
    before = checksum(bytes(data))
    data[place % nbytes] ^= 1 << bit
    assert checksum(memoryview(data)) != before


@given(first=st.integers(0, 24), second=st.integers(0, 24))
def test_the_checksum_notices_pages_that_changed_places(first, second):
    pages = [bytes((number,)) * 4096 for number in range(25)]
    before = checksum(b"".join(pages))
    pages[first], pages[second] = pages[second], pages[first]
    assert (checksum(b"".join(pages)) != before) == (first != second)


def test_the_checksum_does_not_depend_on_the_place_in_memory():
    data = random.Random(1).randbytes(50_000)
    expected = checksum(data)
    for shift in range(1, 8):
        assert checksum(memoryview(bytes(shift) + data)[shift:]) == expected
