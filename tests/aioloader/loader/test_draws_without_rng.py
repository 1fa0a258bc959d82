"""Tests of transforms that foreign code calls without `rng`: they draw from the sample's or the batch's stream."""

import numpy as np
import pytest

import aioloader
from aioloader import batchify
from aioloader.rng import current_rng
from aioloader.transforms import Compose, MixUp, RandomCrop, RandomHorizontalFlip, Transform, Views

pytestmark = pytest.mark.usefixtures("leftovers")

N = 24
IMAGES = np.random.default_rng(0).integers(0, 256, (N, 12, 12, 3), np.uint8)
CHAIN = Compose([RandomCrop(8), RandomHorizontalFlip()])
MIX = MixUp(num_classes=N)
EXECUTORS = [("inline", 0), ("process", 2), pytest.param("thread", 2, marks=pytest.mark.slow)]


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


class Images:
    """Dataset of the caller's that transforms in ``__getitem__``."""

    def __len__(self):
        return N

    def __getitem__(self, index):
        return CHAIN(IMAGES[index]), index


class Plain:
    """Dataset of the caller's that does not transform."""

    def __len__(self):
        return N

    def __getitem__(self, index):
        return IMAGES[index], index


def collate(samples):
    return MIX(batchify.Stack()(samples))


def collate_with_rng(samples, *, rng):
    return MIX(batchify.Stack()(samples), rng=rng)


ARRAYS = aioloader.ArrayDataset(IMAGES, np.arange(N))
SAME = {
    "a callable": (ARRAYS.transform_first(Wrapped()), ARRAYS.transform_first(CHAIN)),
    "in a chain": (ARRAYS.transform_first(Compose([Wrapped()])), ARRAYS.transform_first(CHAIN)),
    "a Transform of the caller's": (ARRAYS.transform_first(OwnTransform()), ARRAYS.transform_first(CHAIN)),
    "of all fields": (ARRAYS.transform(of_sample), ARRAYS.transform_first(CHAIN)),
    "with rng, not passed on": (ARRAYS.transform(of_sample_with_rng), ARRAYS.transform_first(CHAIN)),
    "a dataset": (Images(), ARRAYS.transform_first(CHAIN)),
    "views": (
        ARRAYS.transform_first(Views({"a": (Wrapped(), 2)})),
        ARRAYS.transform_first(Views({"a": (CHAIN, 2)})),
    ),
    "a part of a joined dataset": (
        aioloader.ConcatDataset([Images()]),
        aioloader.ConcatDataset([Plain()]).transform_first(CHAIN),
    ),
}


def batches(dataset, executor, workers, **options):
    with aioloader.DataLoader(
        dataset, 5, shuffle=True, executor=executor, num_workers=workers, watch_globals=False, **options
    ) as loader:
        return [[leaf.copy() for leaf in _leaves(batch)] for _ in range(2) for batch in loader]


def _leaves(batch):
    images, labels = batch
    return [images["a"] if isinstance(images, dict) else images, labels]


def equal(some, others):
    return len(some) == len(others) and all(
        np.array_equal(one, other)
        for pair in zip(some, others, strict=True)
        for one, other in zip(*pair, strict=True)
    )


@pytest.mark.parametrize(("executor", "workers"), EXECUTORS)
@pytest.mark.parametrize("name", SAME)
def test_a_transform_that_is_called_without_rng_draws_what_it_would_draw_directly(name, executor, workers):
    without, direct = SAME[name]
    assert equal(batches(without, executor, workers), batches(direct, "inline", 0))


@pytest.mark.parametrize(("executor", "workers"), EXECUTORS)
def test_a_batchify_function_without_rng_draws_from_the_stream_of_the_batch(executor, workers):
    found = batches(ARRAYS, executor, workers, batchify_fn=collate)
    assert equal(found, batches(ARRAYS, "inline", 0, batchify_fn=collate_with_rng))


def test_an_async_transform_without_rng_draws_from_its_own_stream():
    found = batches(ARRAYS.transform_first(awaited), "inline", 0)
    assert equal(found, batches(ARRAYS.transform_first(awaited_with_rng), "inline", 0))


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
