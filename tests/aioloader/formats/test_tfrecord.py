"""Tests of the framing of TFRecord files: checksums, heads, payloads, and text indexes."""

from __future__ import annotations

import gzip
import struct
import zlib

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.errors import SampleFormatError
from aioloader.formats.tfrecord.framing import (
    MOST_PAYLOAD,
    check_payload,
    compressed,
    compression_of,
    find_heads,
    head_fault,
    length_crc,
    length_crcs,
    mask,
    payload_of,
)
from aioloader.formats.tfrecord.records import most_nbytes, parse_index
from tests.aioloader.formats.tfrecords import masked_crc, record
from tests.cases import with_cases

NAMED = {"path": "a.tfrecord", "offset": 100, "key": "7"}


def test_checksums_are_those_of_the_specification() -> None:
    assert mask(0xE3069283) == masked_crc(b"123456789")  # RFC 3720's check value of CRC-32C
    # The first bytes of a file that TensorFlow wrote with the record b"abc".
    assert record(b"abc")[:12].hex() == "0300000000000000b099490e"


@given(st.lists(st.integers(0, (1 << 64) - 1) | st.integers(0, 1 << 20), max_size=9))
def test_checksums_of_lengths(lengths: list[int]) -> None:
    expected = [masked_crc(struct.pack("<Q", length)) for length in lengths]
    assert [length_crc(length) for length in lengths] == expected
    found = length_crcs(np.array(lengths, np.uint64))
    assert (found.tolist(), found.dtype) == (expected, np.uint32)


def crc_of_library(data: memoryview) -> int:
    """Return the CRC-32C without the mask."""
    rotated = (masked_crc(bytes(data)) - 0xA282EAD8) & 0xFFFFFFFF
    return (rotated >> 17 | rotated << 15) & 0xFFFFFFFF


@given(st.binary(max_size=40))
def test_a_record_has_its_payload(payload: bytes) -> None:
    data = memoryview(record(payload))
    assert payload_of(data, path="a", offset=0) == payload
    check_payload(data, crc_of_library, path="a", offset=0)


@given(st.binary(min_size=1, max_size=40), st.data())
def test_a_changed_bit_is_found(payload: bytes, data: st.DataObject) -> None:
    changed = bytearray(record(payload))
    bit = data.draw(st.integers(0, len(changed) * 8 - 1))
    changed[bit // 8] ^= 1 << bit % 8
    with pytest.raises(SampleFormatError) as caught:
        payload_of(memoryview(changed), **NAMED)
        check_payload(memoryview(changed), crc_of_library, **NAMED)
    error = caught.value
    assert (error.path, error.offset, error.key) == ("a.tfrecord", 100, "7")
    assert error.expected != error.found


@with_cases("nbytes", [0, 12, 15])
def test_bytes_that_are_not_one_record_are_refused(nbytes: int) -> None:
    with pytest.raises(SampleFormatError, match="another length than its index says"):
        payload_of(memoryview(bytes(nbytes)), **NAMED)
    longer = memoryview(record(b"abc") + bytes(nbytes + 1))
    with pytest.raises(SampleFormatError, match="another length") as caught:
        payload_of(longer, **NAMED)
    assert (caught.value.expected, caught.value.found) == (f"{len(longer)} bytes", "19 bytes")


def test_heads_are_compared() -> None:
    def fault(length: int, crc: int | None = None, held: int | None = None) -> SampleFormatError | None:
        crc = length_crc(length) if crc is None else crc
        return head_fault(length, crc, path="a", offset=5, key="1", held=held)

    assert fault(10) is None
    assert fault(10, held=26) is None
    assert fault(MOST_PAYLOAD) is None
    for found, text in (
        (fault(10, crc=1), "not the head of a TFRecord"),
        (fault(10, held=25), "ends inside this record"),
        (fault(MOST_PAYLOAD + 1), "longer than a tf.train.Example can be"),
        (fault((1 << 64) - 1), "longer than a tf.train.Example can be"),
        (fault((1 << 64) - 1, held=100), "ends inside this record"),
    ):
        assert found is not None
        assert text in str(found)
        assert (found.path, found.offset, found.key) == ("a", 5, "1")


def test_compressed_files_are_recognized() -> None:
    data = record(b"abc")
    assert compression_of(gzip.compress(data)) == "GZIP"
    for level in range(10):
        assert compression_of(zlib.compress(data, level)) == "ZLIB"
    assert compression_of(data) is None
    assert compression_of(b"") is compression_of(b"x") is None
    for kind, advice in (("GZIP", "gunzip < FILE > NEW"), ("ZLIB", r"tf\.io\.TFRecordWriter\(PATH\)")):
        error = compressed(kind, "a.gz")
        assert error.path == "a.gz"
        with pytest.raises(SampleFormatError, match=advice):
            raise error


def test_zeros_are_not_heads() -> None:
    assert not len(find_heads(np.zeros(1 << 20, np.uint8), MOST_PAYLOAD))
    long = np.frombuffer(record(bytes(50)), np.uint8)
    assert find_heads(long, 49).tolist() == []
    assert find_heads(long, 50).tolist() == [0]


# -- text indexes ----------------------------------------------------------------------------------------------------


@given(st.lists(st.integers(16, 1 << 40), min_size=1, max_size=20))
def test_an_index_that_fits_is_read(lengths: list[int]) -> None:
    offsets = np.cumsum([0, *lengths]).tolist()
    text = "".join(f"{at} {size}\n" for at, size in zip(offsets, lengths, strict=False)).encode()
    found = parse_index(text, offsets[-1])
    assert found is not None
    assert (found.tolist(), found.dtype) == (lengths, np.int64)
    assert len(text) <= most_nbytes(offsets[-1])
    assert parse_index(text, offsets[-1] + 1) is None
    assert parse_index(text, offsets[-1] - 1) is None


@with_cases(
    "text",
    [
        b"",
        b"\n",
        b"0",
        b"0 20 20",
        b"0 20\n21 20",
        b"1 39",
        b"20 20\n0 20",
        b"0 50\n50 -10",
        b"0 25\n25 15",
        b"0 4e1",
        b"0 40.",
        b"0\t\xc2\xb24",
        b"0 1234567890123456789",
        b"0 9223372036854775808\n9223372036854775808 9223372036854775848",
        b"x" * 1000,
        b"0 40\n" + b" " * 1000,
    ],
)
def test_any_other_index_is_ignored(text: bytes) -> None:
    assert parse_index(text, 40) is None


def test_separators_do_not_matter() -> None:
    found = parse_index(b"0\t20\r\n20  20", 40)
    assert found is not None
    assert found.tolist() == [20, 20]
