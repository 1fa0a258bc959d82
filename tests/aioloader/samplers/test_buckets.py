"""Tests of batches of like items: each index once, equal steps of ranks, resuming, and shapes for images."""

from __future__ import annotations

import math
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aioloader
from aioloader import DataLoader, SimpleDataset
from aioloader.errors import BudgetError
from aioloader.samplers import BucketBatchSampler, aspect_shapes, nearest_shape
from tests.cases import with_cases

KEYS = st.lists(st.integers(0, 300), max_size=80)


def taken(sampler: BucketBatchSampler, epoch: int = 0, start: int = 0) -> list[list[int]]:
    return [batch.indices.tolist() for batch in sampler.batches(7, epoch, start)]


@given(
    keys=KEYS, size=st.integers(1, 9), buckets=st.one_of(st.none(), st.integers(1, 6)), shuffle=st.booleans()
)
def test_every_index_comes_once_with_its_like(
    keys: list[int], size: int, buckets: int | None, shuffle: bool
) -> None:
    sampler = BucketBatchSampler(keys, size, buckets=buckets, shuffle=shuffle)
    batches = taken(sampler)
    assert sorted(index for batch in batches for index in batch) == list(range(len(keys)))
    assert len(batches) == sampler.count(7, 0)
    numbers = sampler._bucket
    for batch in batches:
        assert len({int(numbers[index]) for index in batch}) == 1
        assert len(batch) <= size
    of_bucket = [int(numbers[batch[0]]) for batch in batches if len(batch) < size]
    assert len(of_bucket) == len(set(of_bucket))  # one smaller batch of each bucket at most
    if buckets is not None and keys:
        low, high = min(keys), max(keys)
        ends = {
            number: [key for key, of in zip(keys, numbers, strict=True) if of == number]
            for number in set(numbers)
        }
        spans = sorted((min(found), max(found)) for found in ends.values())
        assert spans[0][0] == low
        assert spans[-1][1] == high
        assert all(before[1] < after[0] for before, after in pairwise(spans))


@given(keys=KEYS, size=st.integers(1, 9), world=st.integers(1, 4), drop=st.booleans())
def test_ranks_have_equally_many_steps(keys: list[int], size: int, world: int, drop: bool) -> None:
    whole = taken(BucketBatchSampler(keys, size, buckets=3, drop_last=drop))
    options: dict[str, Any] = {"buckets": 3, "drop_last": drop}
    ranks = [taken(BucketBatchSampler(keys, size, **options, shard=(rank, world))) for rank in range(world)]
    assert len({len(each) for each in ranks}) == 1
    dealt = [batch for step in zip(*ranks, strict=True) for batch in step]
    kept = whole[: len(dealt)]
    assert dealt[: len(kept)] == kept
    assert len(whole) - len(kept) < world
    assert all(batch in whole for batch in dealt)


@given(keys=KEYS, start=st.integers(0, 20), epoch=st.integers(0, 3))
def test_an_epoch_goes_on_anywhere(keys: list[int], start: int, epoch: int) -> None:
    sampler = BucketBatchSampler(keys, 4, buckets=3)
    assert taken(sampler, epoch, start) == taken(sampler, epoch)[start:]


def test_epochs_differ_and_are_repeated() -> None:
    sampler = BucketBatchSampler(np.arange(1000) % 97, 16, buckets=4)
    assert taken(sampler, 0) == taken(sampler, 0)
    assert taken(sampler, 0) != taken(sampler, 1)
    first = [batch[0] for batch in taken(sampler, 0)]
    assert first != sorted(first)
    assert sorted(map(len, sampler)) == sorted(map(len, taken(sampler, 0)))


def test_in_order_a_batch_comes_when_its_last_index_does() -> None:
    keys = [0, 1, 0, 1, 1, 0, 0]
    assert taken(BucketBatchSampler(keys, 2, shuffle=False)) == [[0, 2], [1, 3], [5, 6], [4]]


def test_sizes_of_batches() -> None:
    keys = [10, 20, 30, 40, 100]
    assert BucketBatchSampler(keys, budget=120, buckets=[25, 50]).sizes == (6, 3, 1)
    assert BucketBatchSampler(keys, [4, 2, 1], buckets=[25, 50]).sizes == (4, 2, 1)
    rng = np.random.default_rng(0)
    lengths = rng.integers(1, 500, 2000)
    sampler = BucketBatchSampler(lengths, budget=4096, buckets=8)
    for batch in taken(sampler):
        assert max(lengths[batch]) * len(batch) <= 4096


def padding(batches: list[list[int]], lengths: Any) -> float:
    whole = sum(max(lengths[batch]) * len(batch) for batch in batches)
    return 1 - sum(lengths[batch].sum() for batch in batches) / whole


def test_buckets_save_padding() -> None:
    lengths = np.random.default_rng(1).integers(1, 500, 4000)
    assert padding(taken(BucketBatchSampler(lengths, 32, buckets=16)), lengths) < 0.08
    assert padding(taken(BucketBatchSampler(lengths, 32, buckets=1)), lengths) > 0.4


@with_cases(
    ("options", "kind", "text"),
    [
        ({}, ValueError, "a batch_size or a budget"),
        ({"batch_size": 2, "budget": 3}, ValueError, "a batch_size or a budget"),
        ({"batch_size": [2], "buckets": 3}, ValueError, "1 sizes, and there are 3 buckets"),
        ({"batch_size": 2, "buckets": [3, 1]}, ValueError, "ascending"),
        ({"batch_size": 0}, ValueError, "at least 1"),
        ({"budget": 2}, BudgetError, "item 2 costs 3"),
        ({"keys": ["a"], "batch_size": 1}, TypeError, "keys must be numbers"),
        ({"keys": [math.nan], "batch_size": 1}, ValueError, "NaN"),
        ({"keys": [[1]], "batch_size": 1}, ValueError, "one axis"),
        ({"batch_size": 1, "seed": -1}, ValueError, "seed"),
    ],
)
def test_what_is_not_allowed_is_named(options: dict[str, Any], kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        BucketBatchSampler(options.pop("keys", [1, 2, 3]), **options)


@with_cases("stop", [0, 1, 5])
def test_a_loader_resumes_in_the_middle(stop: int) -> None:
    def make() -> DataLoader[Any]:
        sampler = BucketBatchSampler(np.arange(60) % 13, 4, buckets=3)
        return DataLoader(SimpleDataset(list(range(60))), batch_sampler=sampler, num_workers=0)

    loader = make()
    expected = [batch.tolist() for batch in loader]
    receipt = loader.receipt()
    following = [batch.tolist() for batch in loader]
    loader = make()
    batches = iter(loader)
    first = [next(batches).tolist() for _ in range(stop)]
    state = loader.state_dict()
    other = make()
    other.load_state_dict(state)
    assert len(other) == len(expected) - stop
    assert first + [batch.tolist() for batch in other] == expected
    assert [batch.tolist() for batch in other] == following
    assert receipt.seen == 60


@given(area=st.integers(32 * 32, 1024 * 1024), unit=st.sampled_from([1, 14, 32, 64]), ratio=st.floats(1, 4))
def test_shapes_have_about_the_area(area: int, unit: int, ratio: float) -> None:
    try:
        shapes = aspect_shapes(area, multiple_of=unit, max_ratio=ratio)
    except ValueError:
        assert unit * unit * ratio > area / 4
        return
    assert len(shapes) == len(set(shapes))
    for height, width in shapes:
        assert height % unit == width % unit == 0
        assert max(height, width) <= ratio * min(height, width)
        assert (width, height) in shapes
        assert abs(height * width - area) <= max(height, width) * unit + unit**2
    ratios = [height / width for height, width in shapes]
    assert ratios == sorted(ratios)


@given(sizes=st.lists(st.tuples(st.integers(1, 5000), st.integers(1, 5000)), min_size=1, max_size=30))
def test_the_nearest_shape_is_the_nearest(sizes: list[tuple[int, int]]) -> None:
    shapes = aspect_shapes(256 * 256)
    for (height, width), number in zip(sizes, nearest_shape(sizes, shapes).tolist(), strict=True):
        away = [abs(math.log(height / width) - math.log(h / w)) for h, w in shapes]
        assert away[number] <= min(away) + 1e-9


def test_shapes_that_cannot_be() -> None:
    with pytest.raises(ValueError, match="multiple_of must be at least 1"):
        aspect_shapes(16, multiple_of=0)
    with pytest.raises(ValueError, match="max_ratio must be at least 1"):
        aspect_shapes(16, max_ratio=0.5)
    assert aspect_shapes(16, multiple_of=32) == [(32, 32)]
    with pytest.raises(ValueError, match="at least one shape"):
        nearest_shape([(1, 1)], [])
    with pytest.raises(ValueError, match="at least 1"):
        nearest_shape([(0, 1)], [(1, 1)])


def test_sizes_of_images_are_read_from_headers(photo_folder: Any) -> None:
    dataset = aioloader.ImageFolderDataset(photo_folder)
    sizes = aioloader.image_sizes(dataset)
    assert sizes.dtype == np.int64
    assert sizes.tolist() == [list(dataset[index][0].shape[:2]) for index in range(len(dataset))]
