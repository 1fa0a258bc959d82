"""Tests of objects in memory: they have the bytes that were added, until all samples were read."""

from __future__ import annotations

import random

from hypothesis import given
from hypothesis import strategies as st

from aioloader.storage.remote.source import HeldObjects

URL = "http://host/a.tar"


@given(
    cuts=st.sets(st.integers(1, 99)),
    missing=st.sets(st.integers(0, 100), max_size=2),
    seed=st.integers(0, 1 << 32),
    offset=st.integers(0, 100),
    nbytes=st.integers(0, 100),
)
def test_bytes_are_those_of_the_blocks(
    cuts: set[int], missing: set[int], seed: int, offset: int, nbytes: int
) -> None:
    data = bytes(range(100))
    nbytes = min(nbytes, 100 - offset)
    begins = sorted({0, *cuts})
    blocks = list(zip(begins, [*begins[1:], 100], strict=True))
    held = HeldObjects(100, 1)
    assert held.reserve(URL, 100)
    random.Random(seed).shuffle(blocks)
    absent: set[int] = set()
    for number, (begin, end) in enumerate(blocks):
        if number in missing:
            absent.update(range(begin, end))
        else:
            held.add(URL, begin, data[begin:end])
    out = bytearray(nbytes)
    wanted = range(offset, offset + nbytes)
    if nbytes:
        assert held.read(URL, offset, memoryview(out)) is absent.isdisjoint(wanted)
    if absent.isdisjoint(wanted):
        assert out == data[offset : offset + nbytes]


def test_an_object_is_dropped_when_all_samples_were_read() -> None:
    held = HeldObjects(10, 1)
    assert not held.reserve(URL, 11)
    assert held.reserve(URL, 10)
    assert not held.reserve("another", 1)
    assert not held.reserve(URL, 0)
    held.add(URL, 0, b"0123456789")
    held.expect(URL, 8)
    out = memoryview(bytearray(4))
    assert held.read(URL, 1, out)
    assert bytes(out) == b"1234"
    assert len(held) == 1
    assert not held.read(URL, 8, out)
    assert held.read(URL, 5, out)
    assert len(held) == 0


def test_an_object_without_samples_is_dropped() -> None:
    held = HeldObjects(10, 1)
    assert held.reserve(URL, 10)
    held.expect(URL, 0)
    assert len(held) == 0
    assert held.reserve(URL, 10)


def test_all_is_dropped_when_a_sample_is_read_again() -> None:
    held = HeldObjects(10, 2)
    for url in (URL, "another"):
        assert held.reserve(url, 5)
        held.add(url, 0, b"01234")
    out = memoryview(bytearray(2))
    assert held.read(URL, 0, out)
    assert len(held) == 2
    assert held.read(URL, 0, out)
    assert len(held) == 0
    assert held.reserve(URL, 10)
    assert not held.read(URL, 1, out)
    held.add(URL, 0, b"late")
    held.drop(URL)
    assert held.reserve("another", 10)


def test_many_objects_are_read_with_few_blocks_each() -> None:
    assert HeldObjects(0, 1000).ahead == HeldObjects(0, 32).ahead == 2
    assert HeldObjects(0, 1).ahead > HeldObjects(0, 16).ahead > 2
