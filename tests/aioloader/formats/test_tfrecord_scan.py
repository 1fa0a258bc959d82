"""Tests of the scan of TFRecord files: the records are found with few reads, also where payloads contain records."""

from __future__ import annotations

import struct
import zlib
from collections.abc import Sequence
from random import Random

import numpy as np
import pytest

from aioloader.errors import SampleFormatError
from aioloader.formats.tfrecord import framing as tfrecord_scan
from aioloader.formats.tfrecord.framing import HEAD_NBYTES, FileScan, length_crc
from tests.aioloader.formats.tfrecords import many_records, record
from tests.cases import with_cases


class Reads:
    """Scan of bytes, with a record of what it read.

    Attributes:
        rounds: number of `take` calls, each of which waits for the storage once.
        nbytes: bytes that were read.
    """

    def __init__(self, data: bytes, *, parallel: bool) -> None:
        self.rounds = self.nbytes = 0
        self._scan = FileScan("a.tfrecord", len(data), parallel=parallel)
        reached = 0
        while self._scan.wants:
            for offset, nbytes in self._scan.wants:
                assert offset >= 0
                assert nbytes > 0
                assert offset + nbytes <= len(data)
            parts = [memoryview(data)[at : at + nbytes] for at, nbytes in self._scan.wants]
            self.rounds += 1
            self.nbytes += sum(map(len, parts))
            self._scan.take(parts)
            assert reached <= self._scan.reached <= len(data)
            reached = self._scan.reached

    def lengths(self) -> list[int]:
        """Return the lengths of the records."""
        found = self._scan.lengths()
        assert found.dtype == np.int64
        return found.tolist()


def scan(data: bytes, *, parallel: bool = False) -> list[int]:
    """Return the lengths of the records in a file."""
    return Reads(data, parallel=parallel).lengths()


SMALL = {
    **{"_LEAST_SEGMENT": 400, "_RECORDS_OF_SEGMENT": 4, "_LEAST_SEARCH": 100, "_FIRST_NBYTES": 64},
    **{"_LEAST_BLOCK": 32, "_MOST_BLOCK": 256, "_SPARSE_NBYTES": 200, "_CHECKED_AT_A_TIME": 5},
}


@pytest.fixture
def small(monkeypatch: pytest.MonkeyPatch) -> None:
    """Make segments and blocks small, so that small files have many."""
    for name, value in SMALL.items():
        monkeypatch.setattr(tfrecord_scan, name, value)


def payloads_of(sizes: Sequence[int], seed: int) -> list[bytes]:
    """Return payloads of random bytes."""
    random = Random(seed)
    return [random.randbytes(size) for size in sizes]


@with_cases("parallel", [False, True])
@with_cases("seed", range(4))
def test_all_records_are_found(parallel: bool, seed: int, small: None) -> None:
    random = Random(seed)
    most = (5, 40, 300, 3000)[seed % 4]
    payloads = payloads_of([random.randrange(most) for _ in range(random.randrange(300))], seed)
    data = b"".join(map(record, payloads))
    assert scan(data, parallel=parallel) == [len(payload) + 16 for payload in payloads]


@with_cases("parallel", [False, True])
def test_files_inside_of_payloads_are_not_followed(parallel: bool, small: None) -> None:
    inner = b"".join(map(record, payloads_of([30] * 40, 1)))
    outer = [inner, b"x" * 3000, inner + b"end", b"", inner * 3] * 6
    data = b"".join(map(record, outer))
    assert scan(data, parallel=parallel) == [len(payload) + 16 for payload in outer]


@with_cases("parallel", [False, True])
@with_cases(("data", "lengths"), [(b"", []), (record(b""), [16]), (record(b"abc") * 2, [19, 19])])
def test_short_files(parallel: bool, data: bytes, lengths: list[int]) -> None:
    assert scan(data, parallel=parallel) == lengths


def test_of_large_records_only_the_heads_are_read() -> None:
    data = many_records(bytes(100_000), 300)
    reads = Reads(data, parallel=False)
    assert reads.lengths() == [100_016] * 300
    assert reads.nbytes < 300 * HEAD_NBYTES + (32 << 10)
    assert reads.rounds <= 301


def test_of_small_records_many_are_read_at_a_time() -> None:
    data = many_records(bytes(84), 100_000)
    reads = Reads(data, parallel=False)
    assert reads.lengths() == [100] * 100_000
    assert reads.rounds < 60
    assert reads.nbytes < len(data) * 1.05


def test_several_chains_are_followed_at_a_time() -> None:
    data = many_records(bytes(100_000), 2400)
    one, many = Reads(data, parallel=False), Reads(data, parallel=True)
    assert many.lengths() == one.lengths()
    assert one.rounds >= 2400
    assert many.rounds < 500
    assert many.nbytes < len(data) / 50


def test_a_small_file_is_cut_into_segments_too() -> None:
    # The first record does not decide alone how many.
    sizes = [900_000, *[Random(number).randrange(50_000, 150_000) for number in range(150)]]
    # A scan reads no checksum of a payload.
    data = b"".join(struct.pack("<QI", size, length_crc(size)) + bytes(size + 4) for size in sizes)
    one, many = Reads(data, parallel=False), Reads(data, parallel=True)
    assert many.lengths() == one.lengths() == [size + 16 for size in sizes]
    assert one.rounds >= 150
    assert many.rounds < 75
    assert many.nbytes < len(data) / 50 + (2 << 20)


@with_cases("parallel", [False, True])
@with_cases("cut", [1, 4, 16, 19, 100])
def test_a_truncated_file_is_an_error_that_names_the_record(parallel: bool, cut: int, small: None) -> None:
    payloads = payloads_of([84] * 50, 3)
    data = b"".join(map(record, payloads))[:-cut]
    if cut == 100:  # at the end of a record: such a file is a valid one
        assert scan(data, parallel=parallel) == [100] * 49
        return
    with pytest.raises(SampleFormatError, match="ends inside this record: it was truncated") as caught:
        scan(data, parallel=parallel)
    error = caught.value
    assert (error.path, error.offset, error.key) == ("a.tfrecord", 4900, "49")
    assert error.found == f"{100 - cut} bytes"


@with_cases("parallel", [False, True])
@with_cases("row", [0, 4, 5, 99])
@with_cases("byte", [0, 7, 8])
def test_the_first_damaged_head_is_the_error(parallel: bool, row: int, byte: int, small: None) -> None:
    data = bytearray(b"".join(map(record, payloads_of([84] * 100, 4))))
    for place in {row, 99}:
        data[place * 100 + byte] ^= 64
    with pytest.raises(SampleFormatError, match="not the head of a TFRecord") as caught:
        scan(bytes(data), parallel=parallel)
    assert (caught.value.offset, caught.value.key) == (100 * row, str(row))


@with_cases("parallel", [False, True])
def test_a_compressed_file_is_refused_with_advice(parallel: bool) -> None:
    data = zlib.compress(b"".join(map(record, payloads_of([1000] * 100, 5))))
    with pytest.raises(SampleFormatError, match="compressed as a whole") as caught:
        scan(data, parallel=parallel)
    assert caught.value.offset == 0
