"""Tests of samples that come several times in an epoch: each draws other random numbers, the same in every run."""

import json
import random
from collections import defaultdict

import numpy as np
import pytest

from aioloader import AsyncDataLoader, DataLoader, IterableDataset, SimpleDataset
from aioloader.samplers import (
    BatchSampler,
    BucketBatchSampler,
    ClassBalancedSampler,
    MixingSampler,
    PKSampler,
    WeightedRandomSampler,
)
from tests.cases import with_cases
from tests.executors import pool

pytestmark = pytest.mark.filterwarnings("ignore::aioloader.ForeignRandomnessWarning")
LABELS = [0, 0, 0, 0, 0, 0, 0, 1, 1, 2]


def draw(index, *, rng):
    return np.int64(index), np.int64(rng.integers(1 << 40))


def draw_globally(index):
    return np.int64(index), np.int64(random.getrandbits(40))


async def draw_async(index, *, rng):
    return draw(index, rng=rng)


class RepeatedAugmentation(list):
    """Sampler that gives each index three times in a row, as those of repeated augmentation do."""

    def __init__(self):
        super().__init__(index for index in range(10) for _ in range(3))


SAMPLERS = {
    "weights": lambda: WeightedRandomSampler([1, *[0.01] * 9], num_samples=60),
    "classes": lambda: ClassBalancedSampler(LABELS, num_samples=60),
    "identities": lambda: PKSampler(np.array(LABELS), p=3, k=4),
    "mixed": lambda: MixingSampler([7, 3], [1, 1], num_samples=60),
    "a list": lambda: [4, 4, 4, 1, 4, -6, 4, 2, 4],
    "repeated augmentation": RepeatedAugmentation,
}
BATCH_SAMPLERS = {
    "lists": lambda: [[4, 4], [4, 1, 4], [4]],
    "arrays": lambda: [np.array([4, 4]), np.array([4, 1, 4])],
    "batches of a sampler": lambda: BatchSampler(RepeatedAugmentation(), 7),
    "buckets": lambda: BucketBatchSampler([1] * 5, 4),
}


def pairs(batches):
    return [pair for indices, draws in batches for pair in zip(indices.tolist(), draws.tolist(), strict=True)]


def assert_all_differ(found):
    drawn = defaultdict(list)
    for index, number in found:
        drawn[index].append(number)
    assert max(map(len, drawn.values())) >= 3
    assert len({number for _, number in found}) == len(found)


def loader(sampler, transform=draw, executor="inline", **options):
    dataset = SimpleDataset(list(range(10))).transform(transform)
    batch_size = None if "batch_sampler" in options else options.pop("batch_size", 4)
    return DataLoader(dataset, batch_size, sampler=sampler, **pool(executor, 2), **options)


@with_cases("name", SAMPLERS)
def test_copies_of_a_sample_draw_differently_with_every_sampler(name):
    with loader(SAMPLERS[name]()) as batches:
        first, second = pairs(batches), pairs(batches)
    assert_all_differ(first)
    assert not set(first) & set(second)
    with loader(SAMPLERS[name]()) as again:
        assert pairs(again) == first


@with_cases("name", BATCH_SAMPLERS)
def test_copies_of_a_sample_draw_differently_with_every_batch_sampler(name):
    with loader(None, batch_sampler=BATCH_SAMPLERS[name]()) as batches:
        first = pairs(batches)
    if name == "buckets":
        assert len({number for _, number in first}) == 5
    else:
        assert_all_differ(first)
    with loader(None, batch_sampler=BATCH_SAMPLERS[name]()) as again:
        assert pairs(again) == first


@with_cases("transform", [draw, draw_globally, draw_async])
@with_cases("executor", ["inline", "thread", "process"])
def test_copies_of_a_sample_draw_the_same_with_every_executor(executor, transform):
    if transform is draw_globally and executor != "process":
        pytest.skip("the generators of a shared interpreter are not seeded")
    with loader(RepeatedAugmentation(), transform, executor) as batches:
        found = pairs(batches)
    assert_all_differ(found)
    with loader(RepeatedAugmentation(), transform, executor, batch_size=7) as batches:
        assert pairs(batches) == found
    if transform is draw:
        with loader(RepeatedAugmentation()) as expected:
            assert pairs(expected) == found


@with_cases("name", ["weights", "repeated augmentation"])
@with_cases("world", [2, 3])
def test_copies_of_a_sample_draw_the_same_over_ranks(name, world):
    with loader(SAMPLERS[name]()) as whole:
        expected = pairs(whole)
    found = []
    for rank in range(world):
        with loader(SAMPLERS[name](), shard=(rank, world)) as batches:
            found += pairs(batches)
    assert set(expected) <= set(found)
    # The samples that only fill up the last step are drawn anew, too.
    assert len({number for _, number in found}) == len(found)


@with_cases("name", [*SAMPLERS, *BATCH_SAMPLERS])
def test_copies_of_a_sample_draw_the_same_after_a_resume(name):
    def made():
        if name in SAMPLERS:
            return loader(SAMPLERS[name](), last_batch="rollover")
        return loader(None, batch_sampler=BATCH_SAMPLERS[name]())

    with made() as whole:
        expected = pairs(whole), pairs(whole)
    with made() as first:
        batches = iter(first)
        found = pairs([next(batches) for _ in range(2)])
        state = json.loads(json.dumps(first.state_dict()))
    with made() as second:
        second.load_state_dict(state)
        assert (found + pairs(second), pairs(second)) == expected


async def test_numbered_samples_of_a_stream_keep_their_draws():
    async def stream():
        for _ in range(7):
            yield 4

    dataset = IterableDataset(stream).transform(draw)
    async with AsyncDataLoader(dataset, 3, executor="inline") as batches:
        found = pairs([batch async for batch in batches])
        assert len({number for _, number in found}) == 7
