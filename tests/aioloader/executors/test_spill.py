"""Tests of the spill region: arrays that were made in it are not copied, and none overwrites another."""

from __future__ import annotations

import mmap
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.executors.process.messages import pack_value, unpack_value
from aioloader.executors.runner import Spill
from aioloader.executors.transport import pack_result
from aioloader.foundation.types import ChunkResult
from tests.cases import with_cases

START = 4096


def unpacked(memory: mmap.mmap, packed: tuple[bytes, list[Any], int]) -> Any:
    blob, places, _ = packed
    buffers = [
        bytearray(place) if isinstance(place, bytes) else bytearray(memory[place[0] : sum(place)])
        for place in places
    ]
    return unpack_value(blob, buffers)


@given(
    room=st.sampled_from([0, 64, 640, 4096]),
    parts=st.lists(st.tuples(st.booleans(), st.integers(0, 100)), max_size=8),
)
def test_a_result_arrives_as_it_was_made(room: int, parts: list[tuple[bool, int]]) -> None:
    memory = mmap.mmap(-1, 1 << 14)
    spill = Spill(memory, (START, room))
    result = []
    for number, (inside, length) in enumerate(parts):
        dtype = np.dtype(np.int32)
        array = spill.allocate((length,), dtype) if inside else np.empty(length, dtype)
        array[...] = np.arange(length) + 1000 * number
        result.append(array)
    expected = [array.copy() for array in result]

    packed = pack_value(result, memory, (START, room))

    found = unpacked(memory, packed)
    assert all(np.array_equal(each, other) for each, other in zip(found, expected, strict=True))
    used = sorted(place for place in packed[1] if isinstance(place, tuple))
    assert all(offset >= START and offset + nbytes <= START + room for offset, nbytes in used)
    assert all(sum(one) <= other[0] for one, other in pairwise(used))


def test_an_array_of_the_region_stays_where_it_is() -> None:
    memory = mmap.mmap(-1, 1 << 14)
    spill = Spill(memory, (START, 4096))
    first, second = (spill.allocate((100,), np.dtype(np.uint8)) for _ in range(2))
    other = np.ones(8, np.uint8)

    _, places, needed = pack_value([other, second, first], memory, (START, 4096))

    assert places == [(START + 256, 8), (START + 128, 100), (START, 100)]
    assert needed == 320


@pytest.mark.parametrize("room", [0, 64])
def test_an_array_that_does_not_fit_is_new_memory(room: int) -> None:
    memory = mmap.mmap(-1, 1 << 14)
    array = Spill(memory, (START, room)).allocate((10, 10), np.dtype(np.float32))
    assert array.shape == (10, 10)
    assert array.dtype == np.float32
    assert array.base is None


@with_cases("last", [b"", bytes(1 << 16), None])
def test_many_bytes_return_through_the_region(last: bytes | None) -> None:
    memory = mmap.mmap(-1, 1 << 18)
    objects = {
        0: {row: bytes([row]) * 1000 for row in (5, 3, 66, *range(80, 180))} | {4: last},
        2: {5: "five"},
    }
    result = ChunkResult(objects=dict(objects))

    _, _, packed, _ = pack_result(result, lambda value: pack_value(value, memory, (START, 1 << 17)))

    blob, places, _ = packed or (b"", [], 0)
    assert unpacked(memory, (blob, places, 0)) == ({}, objects, None)
    if last is not None:
        assert len(places) == 1
        assert len(blob) < 2000
