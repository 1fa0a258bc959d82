"""Tests of transforms that foreign code calls without `rng`: they draw from the sample's or the batch's stream."""

import functools

import numpy as np
import pytest

import aioloader
from aioloader import batchify
from aioloader.rng import current_rng
from aioloader.transforms import Compose, MixUp, RandomCrop, RandomHorizontalFlip, Transform, Views
from tests.aioloader.loader.samples import Made, digest
from tests.cases import with_cases
from tests.executors import pool

N = 24
IMAGES = np.random.default_rng(0).integers(0, 256, (N, 12, 12, 3), np.uint8)
CHAIN = Compose([RandomCrop(8), RandomHorizontalFlip()])
MIX = MixUp(num_classes=N)


class Wrapped:
    """Callable of one image, as scripts for torchvision define them."""

    def __call__(self, image):
        return CHAIN(image)


class OwnTransform(Transform):
    """Transform of the caller's that passes no draws on."""

    def apply(self, x, rng, out=None):
        return CHAIN(x)


def of_sample(image, label):
    return CHAIN(image), label


def of_sample_with_rng(image, label, *, rng):
    assert isinstance(rng, aioloader.Rng)
    return CHAIN(image), label


async def awaited(image):
    return CHAIN(image)


async def awaited_with_rng(image, *, rng):
    return CHAIN(image, rng=rng)


def collate(samples):
    return MIX(batchify.Stack()(samples))


def collate_with_rng(samples, *, rng):
    return MIX(batchify.Stack()(samples), rng=rng)


ARRAYS = aioloader.ArrayDataset(IMAGES, np.arange(N))
IN_ITEMS = Made(N, lambda index: (CHAIN(IMAGES[index]), index))
SAME = {
    "a callable": (ARRAYS.transform_first(Wrapped()), ARRAYS.transform_first(CHAIN)),
    "in a chain": (ARRAYS.transform_first(Compose([Wrapped()])), ARRAYS.transform_first(CHAIN)),
    "a Transform of the caller's": (ARRAYS.transform_first(OwnTransform()), ARRAYS.transform_first(CHAIN)),
    "of all fields": (ARRAYS.transform(of_sample), ARRAYS.transform_first(CHAIN)),
    "with rng, not passed on": (ARRAYS.transform(of_sample_with_rng), ARRAYS.transform_first(CHAIN)),
    "a dataset": (IN_ITEMS, ARRAYS.transform_first(CHAIN)),
    "views": (
        ARRAYS.transform_first(Views({"a": (Wrapped(), 2)})),
        ARRAYS.transform_first(Views({"a": (CHAIN, 2)})),
    ),
    "a part of a joined dataset": (
        aioloader.ConcatDataset([IN_ITEMS]),
        aioloader.ConcatDataset([Made(N, lambda index: (IMAGES[index], index))]).transform_first(CHAIN),
    ),
}


def digest_of(dataset, executor="inline", **options):
    options = {"shuffle": True, "watch_globals": False, **pool(executor, 2), **options}
    with aioloader.DataLoader(dataset, 5, **options) as loader:
        return digest([*loader, *loader])


@functools.cache
def drawn_directly(name):
    return digest_of(SAME[name][1])


@with_cases("name", SAME)
def test_a_transform_that_is_called_without_rng_draws_what_it_would_draw_directly(name, executor):
    assert digest_of(SAME[name][0], executor) == drawn_directly(name)


def test_a_batchify_function_without_rng_draws_from_the_stream_of_the_batch(executor):
    found = digest_of(ARRAYS, executor, batchify_fn=collate)
    assert found == digest_of(ARRAYS, batchify_fn=collate_with_rng)


def test_an_async_transform_without_rng_draws_from_its_own_stream():
    direct = digest_of(ARRAYS.transform_first(awaited_with_rng))
    assert digest_of(ARRAYS.transform_first(awaited)) == direct


def test_code_between_the_samples_has_no_stream():
    with aioloader.DataLoader(ARRAYS.transform_first(Wrapped()), 5, executor="inline") as loader:
        for _ in loader:
            assert current_rng.get() is None


def test_a_transform_that_fails_leaves_no_stream():
    def fail(image):
        raise OSError("no image")

    with aioloader.DataLoader(ARRAYS.transform_first(fail), 5, executor="inline") as loader:
        with pytest.raises(aioloader.SampleError):
            next(iter(loader))
        assert current_rng.get() is None
