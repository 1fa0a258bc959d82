"""Tests of determinism: every executor produces bit-identical batches."""

import functools
import os
import random
import tempfile
import threading
import warnings

import anyio
import numpy as np
import pytest

import aioloader
from aioloader import AsyncDataLoader, DataLoader, ImageFolderDataset, ImageRecordDataset
from aioloader.transforms import ColorJitter, Compose, RandomHorizontalFlip, RandomResizedCrop
from tests.aioloader.loader.samples import Made, digest
from tests.cases import with_cases
from tests.executors import OF_FORKS, pool

CHAIN = Compose([RandomResizedCrop(48), RandomHorizontalFlip(), ColorJitter(brightness=0.3, saturation=0.3)])
OPTIONS = {"batch_size": 5, "shuffle": True, "last_batch": "rollover", "seed": 11}
CASES = [
    ("rec", "inline", 0, "trio"),
    ("folder", "thread", 5, "asyncio"),
    ("rec", "process", 1, "trio"),
    ("folder", "process", 5, "asyncio"),
    ("rec", "fork", 2, "asyncio"),
]


@pytest.fixture(scope="module", params=["rec", "folder"])
def dataset(request, photo_rec, photo_folder):
    base = ImageRecordDataset(photo_rec) if request.param == "rec" else ImageFolderDataset(photo_folder)
    return base.transform_first(CHAIN)


@pytest.fixture(scope="module")
def expected(dataset):
    loader = DataLoader(dataset, **OPTIONS, num_workers=0)
    return digest([*loader, *loader])


@OF_FORKS
@pytest.mark.parametrize(("dataset", "executor", "workers", "backend"), CASES, indirect=["dataset"])
def test_async_batches_are_the_same(dataset, expected, executor, workers, backend):
    async def main():
        async with AsyncDataLoader(dataset, **OPTIONS, **pool(executor, workers)) as loader:
            return digest([batch for _ in range(2) async for batch in loader])

    assert anyio.run(main, backend=backend) == expected


@pytest.mark.parametrize(
    ("dataset", "executor"), [("rec", "thread"), ("folder", "process")], indirect=["dataset"]
)
def test_blocking_batches_are_the_same(dataset, expected, executor):
    with DataLoader(dataset, **OPTIONS, **pool(executor, 2)) as loader:
        assert digest([*loader, *loader]) == expected


class Global:
    """Transform that draws from the global generators, as foreign transforms do."""

    def __call__(self, image):
        return np.float64(random.random()), np.float64(np.random.rand()), image[0, 0]


def test_foreign_randomness_is_reproducible_in_processes(photo_rec):
    dataset = ImageRecordDataset(photo_rec).transform_first(Global())
    options = {"batch_size": 4, "shuffle": True, "seed": 3, "executor": "process"}
    made = []
    for count in (1, 2):
        with DataLoader(dataset, **options, num_workers=count) as loader:
            made.append(np.concatenate([np.stack(batch[0][:2]) for batch in loader], axis=1))
    assert np.array_equal(*made)
    assert len(np.unique(made[0])) == made[0].size


@pytest.mark.parametrize(
    ("moments", "warned"),
    [({0}, False), ({3, 5, 9}, False), ({4, 5}, True)],
    ids=["once", "now and then", "again and again"],
)
def test_a_draw_of_another_thread_is_not_a_transforms(monkeypatch, moments, warned):
    """One change of the generators' state does not prove that a transform draws; the warning names other causes."""
    from aioloader.foundation import foreign_generators

    monkeypatch.setattr(foreign_generators, "_warned", threading.Lock())

    def meanwhile(number):
        if number in moments:
            other = threading.Thread(target=random.random)
            other.start()
            other.join()
        return number

    data = aioloader.SimpleDataset(range(12)).transform(meanwhile)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        with DataLoader(data, 4, num_workers=1, executor="thread") as loader:
            assert np.concatenate(list(loader)).tolist() == list(range(12))
    assert [warning.category for warning in caught] == [aioloader.ForeignRandomnessWarning] * warned
    assert all("If another thread" in str(warning.message) for warning in caught)


def test_foreign_randomness_is_warned_of_elsewhere(photo_rec, monkeypatch):
    from aioloader.foundation import foreign_generators

    monkeypatch.setattr(foreign_generators, "_warned", threading.Lock())
    dataset = ImageRecordDataset(photo_rec).transform_first(Global())
    with pytest.warns(aioloader.ForeignRandomnessWarning, match="executor='process'"):
        list(DataLoader(dataset, 4, num_workers=0))


SHARED = np.random.default_rng(5)


class Own:
    """Generators of every kind, in an object with slots."""

    __slots__ = ("numpy", "old", "python", "torch")

    def __init__(self):
        self.numpy, self.old, self.python = np.random.default_rng(), np.random.RandomState(3), random.Random()

    def __call__(self, number):
        return number, self.numpy.random(), self.old.rand(), self.python.random()


def drawn_by_a_helper(number):
    return number, SHARED.random()


class Dealer:
    """Object that a global holds, as a composition of albumentations."""

    def __init__(self):
        self.parts = {"a": [random.Random(1)], "b": [random.Random(1)]}

    def __call__(self, image):
        return image, self.parts["a"][0].random(), self.parts["b"][0].random()


DEALER = Dealer()


def draws_in_items():
    generator = np.random.default_rng(0)
    return Made(12, lambda index: (index, generator.random()))


NUMBERS = aioloader.SimpleDataset(list(range(12)))
DRAWING = {
    "object": lambda: {"dataset": NUMBERS.transform(Own())},
    "lambda of a global": lambda: {"dataset": NUMBERS.transform(lambda number: DEALER(image=number))},
    "helper": lambda: {"dataset": NUMBERS.transform(lambda number: next(map(drawn_by_a_helper, [number])))},
    "partial": lambda: {
        "dataset": NUMBERS.transform(
            functools.partial(lambda chain, x: (x, chain.random()), random.Random(2))
        )
    },
    "native around it": lambda: {"dataset": NUMBERS.transform(aioloader.transforms.Compose([Own()]))},
    "dataset": lambda: {"dataset": draws_in_items()},
    "concatenated": lambda: {"dataset": NUMBERS.transform(lambda x: (x, 0.5)) + draws_in_items()},
    "batchify": lambda: {
        "dataset": NUMBERS,
        "batchify_fn": lambda samples: SHARED.random(3 + 0 * len(samples)),
    },
}


@with_cases("kind", DRAWING)
def test_generators_of_foreign_code_are_seeded_for_every_sample(kind):
    """The number of workers, and the state that a generator has, change nothing."""
    made = []
    for workers in (1, 2):
        with DataLoader(**DRAWING[kind](), batch_size=3, num_workers=workers, seed=4, shuffle=True) as loader:
            batches = [batch for _ in range(2) for batch in loader]
        rows = [np.transpose(batch).tolist() if kind != "batchify" else [[*batch]] for batch in batches]
        made.append([tuple(row) for batch in rows for row in batch])
    assert made[0] == made[1]
    draws = [value for row in made[0] for value in row if not float(2 * value).is_integer()]
    assert draws
    assert len(set(draws)) == len(draws)


@with_cases("executor", ["inline", "thread"])
@with_cases("kind", DRAWING)
def test_generators_of_foreign_code_are_warned_of_elsewhere(kind, executor, monkeypatch):
    from aioloader.foundation import foreign_generators

    monkeypatch.setattr(foreign_generators, "_warned", threading.Lock())
    options = {"batch_size": 3, **pool(executor, 2)}
    with pytest.warns(aioloader.ForeignRandomnessWarning, match="a random generator that"):
        with DataLoader(**DRAWING[kind](), **options) as loader:
            list(loader)
    with DataLoader(**DRAWING[kind](), **options, watch_globals=False) as loader:
        list(loader)


@pytest.mark.slow  # its import takes seconds in each process; compositions like it are among the generators above
@with_cases("seed", [None, 3])
def test_albumentations_in_a_function_draws_the_same_with_any_workers(seed):
    os.environ.setdefault("NO_ALBUMENTATIONS_UPDATE", "1")  # otherwise it queries the network
    A = pytest.importorskip("albumentations", reason="needs albumentations")
    chain = A.Compose([A.RandomCrop(8, 8), A.HorizontalFlip(p=0.5), A.Rotate(30)], seed=seed)
    images = np.random.default_rng(0).integers(0, 256, (12, 16, 16, 3), np.uint8)
    data = aioloader.SimpleDataset([{"image": image, "mask": image[..., 1]} for image in images])
    made = []
    for workers in (1, 2):
        with DataLoader(data.transform(lambda d: chain(**d)), 3, num_workers=workers) as loader:
            made.append([(batch["image"].copy(), batch["mask"].copy()) for batch in loader])
    for one, other in zip(*made, strict=True):
        assert np.array_equal(one[0], other[0])
        assert np.array_equal(one[1], other[1])


def test_generators_that_follow_the_rng_are_left_alone():
    from aioloader.foundation.foreign_generators import find_generators
    from aioloader.rng import DrawsFromRng

    class Follows(DrawsFromRng):
        def __init__(self):
            self.generator = random.Random(1)

    assert find_generators([Follows(), random.choice, np.random.rand, lambda: tempfile.mkdtemp()]) == []
