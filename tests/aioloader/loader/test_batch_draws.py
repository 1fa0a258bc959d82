"""Draws of a batch: a batchify function that takes ``rng`` gets the same ones wherever the batch is made."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import aioloader
from aioloader import batchify, transforms
from aioloader.rng import BATCH_DOMAIN, Rng
from tests.executors import pool

COUNT = 22
BATCH = 4


class Pictures:
    """Small images and their classes; some items may fail."""

    def __init__(self, failing: tuple[int, ...] = ()) -> None:
        self.failing = failing

    def __len__(self) -> int:
        return COUNT

    def __getitem__(self, index: int) -> Any:
        if index in self.failing:
            raise ValueError(f"item {index} is damaged")
        return np.full((6, 5, 3), 10 * index, np.uint8), index % 7


def draws_of(samples: list[Any], *, rng: Rng) -> Any:
    return np.array([label for _, label in samples]), rng.random(), rng.integers(1000)


MIXED = batchify.Compose(
    batchify.Stack(),
    transforms.RandomChoice([transforms.MixUp(num_classes=7), transforms.CutMix(alpha=0.5, num_classes=7)]),
)
GROUPED = batchify.Group(
    batchify.Compose(batchify.Stack(), lambda x, rng: (x, rng.random())), batchify.Stack()
)


def flat(batch: Any) -> list[Any]:
    if isinstance(batch, (tuple, list)):
        return [leaf for part in batch for leaf in flat(part)]
    return [np.array(batch)]


def run(function: Any, epochs: int = 2, dataset: Any = None, **options: Any) -> list[list[Any]]:
    options = {"shuffle": True, "seed": 3, "executor": "inline", **options}
    with aioloader.DataLoader(dataset or Pictures(), BATCH, batchify_fn=function, **options) as loader:
        return [flat(batch) for _ in range(epochs) for batch in loader]


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for one, other in zip(found, expected, strict=True):
        for a, b in zip(one, other, strict=True):
            assert a.dtype == b.dtype
            np.testing.assert_array_equal(a, b)


@pytest.mark.parametrize("function", [draws_of, MIXED, GROUPED], ids=["function", "mixed", "grouped"])
@pytest.mark.parametrize(("executor", "workers"), [("thread", 3), ("process", 2)])
def test_every_executor_draws_the_same(function: Any, executor: str, workers: int) -> None:
    assert_same(run(function, **pool(executor, workers)), run(function))


@pytest.mark.parametrize("policy", ["skip", "replace"])
@pytest.mark.parametrize(("executor", "workers"), [("inline", 0), ("thread", 2), ("process", 2)])
def test_failing_samples_change_no_draws(policy: str, executor: str, workers: int) -> None:
    damaged = Pictures((0, 5, 6, 13))
    options = {"dataset": damaged, "on_error": policy, "max_errors": 1000, **pool(executor, workers)}
    found, sound = run(draws_of, **options), run(draws_of)
    drawn, expected = ([tuple(map(float, batch[1:])) for batch in each] for each in (found, sound))
    # A batch without a sample that did not fail is left out, or made of another item.
    assert [each for each in expected if each in drawn] == drawn
    assert len(drawn) >= len(expected) - 1
    assert_same(run(MIXED, **options), run(MIXED, **{**options, "executor": "inline", "num_workers": None}))


def test_a_draw_is_that_of_the_first_sample_and_its_epoch() -> None:
    expected = [
        Rng(3, epoch, 0, BATCH_DOMAIN, position=position).random()
        for epoch in range(2)
        for position in range(0, COUNT, BATCH)
    ]
    assert [float(batch[1]) for batch in run(draws_of)] == expected


@pytest.mark.parametrize("function", [draws_of, MIXED], ids=["function", "mixed"])
def test_an_epoch_is_resumed_in_its_middle(function: Any) -> None:
    expected = run(function, epochs=1)
    options = {"shuffle": True, "seed": 3, "batchify_fn": function, "executor": "inline"}
    with aioloader.DataLoader(Pictures(), BATCH, **options) as loader:
        iterator = iter(loader)
        for _ in range(2):
            next(iterator)
        state = loader.state_dict()
    options = {**options, **pool("process", 2)}
    with aioloader.DataLoader(Pictures(), BATCH, **options) as loader:
        loader.load_state_dict(state)
        assert_same([flat(batch) for batch in loader], expected[2:])


def test_ranks_share_the_batches_of_one() -> None:
    expected = run(MIXED, epochs=1, last_batch="discard")
    for world in (2, 3):
        ranks = [run(MIXED, epochs=1, last_batch="discard", shard=(rank, world)) for rank in range(world)]
        steps = len(ranks[0])
        found = [ranks[rank][step] for step in range(steps) for rank in range(world)]
        assert_same(found, expected[: len(found)])
        assert steps >= 1


def test_batches_over_epochs_draw_other_numbers() -> None:
    drawn = [float(batch[1]) for batch in run(draws_of, epochs=3)]
    assert len(set(drawn)) == len(drawn)


def test_rollover_keeps_the_draws_apart() -> None:
    drawn = [float(batch[1]) for batch in run(draws_of, epochs=3, last_batch="rollover")]
    assert len(set(drawn)) == len(drawn)


@pytest.mark.parametrize(("executor", "workers"), [("inline", 0), ("thread", 2)])
async def test_async_transforms_before_it(executor: str, workers: int) -> None:
    async def later(image: Any) -> Any:
        return image

    dataset = aioloader.ArrayDataset(
        np.arange(COUNT * 12, dtype=np.uint8).reshape(COUNT, 2, 2, 3), np.arange(COUNT)
    ).transform_first(later)
    options = {"seed": 3, "batchify_fn": draws_of, **pool(executor, workers)}
    async with aioloader.AsyncDataLoader(dataset, BATCH, **options) as loader:
        found = [batch[1] async for batch in loader]
    assert found == [Rng(3, 0, 0, BATCH_DOMAIN, position=p).random() for p in range(0, COUNT, BATCH)]


@pytest.mark.parametrize("size", [1, 2, 7])
def test_mixed_batches_are_written_in_place(size: int) -> None:
    """Both the memory and the values: the images of the result are the array that was allocated."""
    samples = [Pictures()[index] for index in range(size)]
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

    samples = [Pictures()[index] for index in range(3)]
    mixup = transforms.MixUp(num_classes=7)
    images, _ = batchify.Compose(batchify.Stack(), keep, mixup)(samples, rng=Rng(1))
    assert images is not kept[0]
    np.testing.assert_array_equal(kept[0], np.stack([image for image, _ in samples]))
    constant = np.zeros((3, 4, 4, 3), np.uint8) + np.arange(3, dtype=np.uint8)[:, None, None, None]
    before = constant.copy()
    batchify.Compose(lambda samples: (constant, np.arange(3)), mixup)(samples, rng=Rng(1))
    np.testing.assert_array_equal(constant, before)


@pytest.mark.parametrize(
    ("make", "error", "text"),
    [
        (lambda: batchify.Compose(batchify.Stack(), 3), ValueError, "function 1 of Compose"),
        (lambda: batchify.Compose([]), ValueError, "one by one"),
        (lambda: batchify.Compose([batchify.Stack()], batchify.Stack()), ValueError, "one by one"),
    ],
)
def test_what_is_not_allowed_is_named(make: Any, error: Any, text: str) -> None:
    with pytest.raises(error, match=text):
        make()
