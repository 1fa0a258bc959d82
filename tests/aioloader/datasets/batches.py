"""Make the batches of an epoch, compare samples and list faults, for the tests of all datasets."""

from __future__ import annotations

from typing import Any

import numpy as np
import simplejpeg

from aioloader import DataLoader
from aioloader.foundation.decodes import CUT
from tests.aioloader.datasets.conftest import pixels
from tests.executors import pool

Batches = list[tuple[Any, ...]]


def jpeg(number: int) -> bytes:
    """Return a JPEG of noise."""
    noise = np.random.default_rng(number).integers(0, 256, (24, 32, 3), dtype=np.uint8)
    encoded: bytes = simplejpeg.encode_jpeg(noise, 90)
    return encoded


def batches_of(dataset: Any, executor: str = "inline", workers: int = 1, **options: Any) -> Batches:
    """Return the batches of an epoch; shuffled, unless the options say otherwise."""
    options = {"batch_size": 4, "shuffle": "sampler" not in options, "seed": 5, **options}
    with DataLoader(dataset, **pool(executor, workers), **options) as loader:
        return copies(loader)


def copies(loader: Any) -> Batches:
    """Return copies of the batches of an epoch, because a loader uses their memory again."""
    return [tuple(np.array(part) for part in batch) for batch in loader]


def assert_same(found: Batches, expected: Batches) -> None:
    """Fail unless the batches are the same, bit for bit."""
    assert len(found) == len(expected) > 1
    for some, others in zip(found, expected, strict=True):
        for one, other in zip(some, others, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


def labels_in(batches: Any) -> list[int]:
    """Return the labels of batches, one behind the other."""
    return [int(label) for batch in batches for label in batch[1]]


def cuts_of(loader: Any) -> int:
    """Return the number of images that a loader cut by entries of crop indexes."""
    return sum(count for (way, _), count in loader.stats().decodes.items() if way == CUT)


def assert_numbered(dataset: Any, count: int) -> None:
    """Fail unless sample i is the image `pixels(i)` with the label i."""
    assert len(dataset) == count
    for place in range(count):
        image, label = dataset[place]
        np.testing.assert_array_equal(image, pixels(place))
        assert (label, label.dtype) == (place, np.int64)


def faults_of(dataset: Any, shard: int = 0) -> tuple[list[Any], int]:
    """Return the faults of a shard, and the number of its valid samples."""
    faults, checking = [], dataset.check_shard(shard)
    while True:
        try:
            faults.append(next(checking))
        except StopIteration as stop:
            return faults, stop.value
