"""Tests of buffers that are sent in parts."""

from __future__ import annotations

from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

import aioloader
from aioloader import batchify
from aioloader.executors.process.messages import PART_NBYTES, PartBuffers, parts_of, without_large
from tests.aioloader.loader.samples import Made
from tests.cases import with_cases

LENGTHS = st.sampled_from(
    [0, 1, PART_NBYTES - 1, PART_NBYTES, PART_NBYTES + 1, 2 * PART_NBYTES, 3 * PART_NBYTES + 7]
)


@given(values=st.lists(st.lists(st.one_of(LENGTHS, st.none()), max_size=4), max_size=3))
def test_places_arrive_as_they_were_sent(values: list[list[int | None]]) -> None:
    buffers = PartBuffers()
    for number, lengths in enumerate(values):
        places = [
            (place, 10) if length is None else bytes([number + place]) * length
            for place, length in enumerate(lengths)
        ]
        left, large = without_large(places)
        for buffer in large:
            for nbytes, part in parts_of(buffer):
                assert len(part) <= PART_NBYTES
                buffers.add(nbytes, part)
        found = [place.tobytes() if isinstance(place, np.ndarray) else place for place in buffers.take(left)]
        assert found == places


RAGGED = Made(16, lambda index: np.full((200_000 + 50_000 * index,), index, np.float32))
# The first ones are much smaller than the rest.
GROWN = Made(16, lambda index: np.full((10 if index < 8 else 500_000,), index, np.float32))


@with_cases("dataset", [RAGGED, GROWN])
@with_cases("memory_limit", [8 << 20, 256 << 20])
async def test_results_of_any_size_arrive_with_and_without_room(dataset: Made, memory_limit: int) -> None:
    options: Any = {"batchify_fn": batchify.AsList(), "num_workers": 2, "memory_limit": memory_limit}
    async with aioloader.AsyncDataLoader[Any](dataset, 4, **options) as loader:
        for _ in range(2):
            batches = [batch async for batch in loader]
            assert [len(each) for each in batches] == [4, 4, 4, 4]
            found = [array for batch in batches for array in batch]
            for index, array in enumerate(found):
                np.testing.assert_array_equal(array, dataset[index])
                assert array.flags.writeable
            del batches, found, array
        assert loader.stats().memory_peak_bytes <= memory_limit


async def test_samples_of_async_transforms_that_are_large_arrive(leftovers: object) -> None:
    async def double(array: np.ndarray) -> np.ndarray:
        return array * 2

    large = Made(8, lambda index: np.full((400_000,), index, np.float32))
    dataset = aioloader.SimpleDataset(large).transform(double).transform(lambda array: array / 2)
    async with aioloader.AsyncDataLoader[Any](dataset, 4, num_workers=2) as loader:
        for _ in range(2):
            batches = [batch async for batch in loader]
            np.testing.assert_array_equal(np.concatenate(batches)[:, 5], np.arange(8))
