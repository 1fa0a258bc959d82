"""Draws of a batch: a batchify function that takes ``rng`` gets the same ones wherever the batch is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aioloader
from aioloader import batchify, transforms
from aioloader.foundation.pytree import map_leaves
from aioloader.rng import BATCH_DOMAIN, Rng
from tests.aioloader.loader.samples import Made, digest
from tests.cases import with_cases
from tests.executors import pool

COUNT = 22
BATCH = 4


def pictures(failing: tuple[int, ...] = ()) -> Made:
    """Return small images and their classes; some items may fail."""

    def make(index: int) -> Any:
        if index in failing:
            raise ValueError(f"item {index} is damaged")
        return np.full((6, 5, 3), 10 * index, np.uint8), index % 7

    return Made(COUNT, make)


def draws_of(samples: list[Any], *, rng: Rng) -> Any:
    return np.array([label for _, label in samples]), rng.random(), rng.integers(1000)


MIXED = batchify.Compose(
    batchify.Stack(),
    transforms.RandomChoice([transforms.MixUp(num_classes=7), transforms.CutMix(alpha=0.5, num_classes=7)]),
)
GROUPED = batchify.Group(
    batchify.Compose(batchify.Stack(), lambda x, rng: (x, rng.random())), batchify.Stack()
)


def run(function: Any, epochs: int = 2, dataset: Any = None, **options: Any) -> list[Any]:
    options = {"shuffle": True, "seed": 3, "executor": "inline", **options}
    with aioloader.DataLoader(dataset or pictures(), BATCH, batchify_fn=function, **options) as loader:
        return [map_leaves(np.copy, batch) for _ in range(epochs) for batch in loader]


def digests(batches: Any) -> list[str]:
    return [digest([batch]) for batch in batches]


@pytest.mark.parametrize("executor", ["thread", "process"])
@with_cases("function", [draws_of, MIXED, GROUPED])
def test_every_executor_draws_the_same(function: Any, executor: str) -> None:
    assert digests(run(function, **pool(executor, 2))) == digests(run(function))


@with_cases("policy", ["skip", "replace"])
def test_failing_samples_change_no_draws(policy: str, executor: str) -> None:
    options = {"dataset": pictures((0, 5, 6, 13)), "on_error": policy, "max_errors": 1000}
    found, sound = run(draws_of, **options, **pool(executor, 2)), run(draws_of)
    drawn, expected = ([tuple(map(float, batch[1:])) for batch in each] for each in (found, sound))
    # A batch without a sample that did not fail is left out, or made of another item.
    assert [each for each in expected if each in drawn] == drawn
    assert len(drawn) >= len(expected) - 1
    assert digests(run(MIXED, **options, **pool(executor, 2))) == digests(run(MIXED, **options))


def test_a_draw_is_that_of_the_first_sample_and_its_epoch() -> None:
    expected = [
        Rng(3, epoch, 0, BATCH_DOMAIN, position=position).random()
        for epoch in range(2)
        for position in range(0, COUNT, BATCH)
    ]
    assert [float(batch[1]) for batch in run(draws_of)] == expected


@with_cases("function", [draws_of, MIXED])
def test_an_epoch_is_resumed_in_its_middle(function: Any) -> None:
    options = {"shuffle": True, "seed": 3, "batchify_fn": function, "executor": "inline"}
    with aioloader.DataLoader(pictures(), BATCH, **options) as loader:
        iterator = iter(loader)
        for _ in range(2):
            next(iterator)
        state = loader.state_dict()
    with aioloader.DataLoader(pictures(), BATCH, **{**options, **pool("process", 2)}) as loader:
        loader.load_state_dict(state)
        assert digests(loader) == digests(run(function, epochs=1)[2:])


def test_ranks_share_the_batches_of_one() -> None:
    options: dict[str, Any] = {"epochs": 1, "last_batch": "discard"}
    expected = digests(run(MIXED, **options))
    for world in (2, 3):
        ranks = [digests(run(MIXED, **options, shard=(rank, world))) for rank in range(world)]
        found = [batch for step in zip(*ranks, strict=True) for batch in step]
        assert found
        assert found == expected[: len(found)]


@with_cases("last_batch", ["keep", "rollover"])
def test_batches_over_epochs_draw_other_numbers(last_batch: str) -> None:
    drawn = [float(batch[1]) for batch in run(draws_of, epochs=3, last_batch=last_batch)]
    assert len(set(drawn)) == len(drawn)


@with_cases("executor", ["inline", "thread"])
async def test_async_transforms_before_it(executor: str) -> None:
    async def later(image: Any) -> Any:
        return image

    dataset = aioloader.SimpleDataset(pictures()).transform_first(later)
    options = {"seed": 3, "batchify_fn": draws_of, **pool(executor, 2)}
    async with aioloader.AsyncDataLoader(dataset, BATCH, **options) as loader:
        found = [batch[1] async for batch in loader]
    assert found == [Rng(3, 0, 0, BATCH_DOMAIN, position=p).random() for p in range(0, COUNT, BATCH)]


@with_cases("size", [1, 2, 7])
def test_mixed_batches_are_written_in_place(size: int) -> None:
    """Both the memory and the values: the images of the result are the array that was allocated."""
    samples = [pictures()[index] for index in range(size)]
    given: list[Any] = []

    def allocate(shape: Any, dtype: Any) -> Any:
        given.append(np.empty(shape, dtype))
        return given[-1]

    for change in (transforms.MixUp(num_classes=7), transforms.CutMix(num_classes=7)):
        given.clear()
        images, labels = batchify.Compose(batchify.Stack(), change).collate(samples, allocate, rng=Rng(1))
        assert images is given[0]
        stacked = batchify.Stack()(samples)
        before = stacked[0].copy()
        apart = change(stacked, rng=Rng(1))
        np.testing.assert_array_equal(images, apart[0])
        np.testing.assert_array_equal(labels, apart[1])
        np.testing.assert_array_equal(stacked[0], before)


def test_arrays_that_others_may_keep_are_not_written_over() -> None:
    kept: list[Any] = []

    def keep(batch: Any) -> Any:
        kept.append(batch[0])
        return batch

    samples = [pictures()[index] for index in range(3)]
    mixup = transforms.MixUp(num_classes=7)
    images, _ = batchify.Compose(batchify.Stack(), keep, mixup)(samples, rng=Rng(1))
    assert images is not kept[0]
    np.testing.assert_array_equal(kept[0], np.stack([image for image, _ in samples]))
    constant = np.zeros((3, 4, 4, 3), np.uint8) + np.arange(3, dtype=np.uint8)[:, None, None, None]
    before = constant.copy()
    batchify.Compose(lambda samples: (constant, np.arange(3)), mixup)(samples, rng=Rng(1))
    np.testing.assert_array_equal(constant, before)


@with_cases(
    ("functions", "text"),
    [
        ([batchify.Stack(), 3], "function 1 of Compose"),
        ([[]], "one by one"),
        ([[batchify.Stack()], batchify.Stack()], "one by one"),
    ],
)
def test_what_is_not_allowed_is_named(functions: Any, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        batchify.Compose(*functions)
