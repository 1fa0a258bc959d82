"""Tests of loaders whose batches have samples of different shapes: the same everywhere, leased, and in every output."""

from __future__ import annotations

import gc
import hashlib
import json
from pathlib import Path
from typing import Any

import anyio
import cloudpickle
import numpy as np
import pytest

import aioloader
from aioloader import AsyncDataLoader, DataLoader
from aioloader.batchify import Group, Pad, Patches, Ragged, Stack
from aioloader.errors import BatchShapeError
from aioloader.foundation.pytree import flatten
from tests.aioloader.cluster import local_cluster
from tests.aioloader.loader import shapes
from tests.aioloader.loader.shapes import Deadly, Pictures, Prompts
from tests.combinations import combinations
from tests.executors import pool

FUNCTIONS = {
    "ragged": (Pictures, Ragged()),
    "nested": (Prompts, Ragged()),
    "padded": (Pictures, Group(Pad(7, multiple_of=8, sizes=True), Stack())),
    "patches": (Pictures, Patches(2, 2)),
    "prompts": (Prompts, Patches(2, 2)),
}
WAYS = {
    "inline": ("inline", 0),
    "thread-2": ("thread", 2),
    "process-1": ("process", 1),
    "process-3": ("process", 3),
}
OPTIONS: dict[str, Any] = {"batch_size": 7, "shuffle": True, "seed": 5}


def digest(batches: Any) -> str:
    total = hashlib.sha256()
    for batch in batches:
        structure, leaves = flatten(batch)
        total.update(repr(structure).encode())
        for leaf in leaves:
            total.update(repr((leaf.shape, leaf.dtype)).encode())
            total.update(np.ascontiguousarray(leaf))
    return total.hexdigest()


@pytest.mark.parametrize(("function", "way"), combinations(FUNCTIONS, WAYS))
def test_batches_are_the_same_in_every_executor(function: Any, way: Any) -> None:
    dataset, batchify = function
    executor, workers = way
    expected = DataLoader(dataset(), **OPTIONS, batchify_fn=batchify, num_workers=0)
    digests = [digest(expected), digest(expected)]
    with DataLoader(dataset(), **OPTIONS, batchify_fn=batchify, **pool(executor, workers)) as loader:
        assert [digest(loader), digest(loader)] == digests


@pytest.mark.parametrize("function", combinations(FUNCTIONS))
def test_async_batches_are_the_same(function: Any, run_on: Any, no_blocking: None, leftovers: Any) -> None:
    dataset, batchify = function
    expected = digest(DataLoader(dataset(), **OPTIONS, batchify_fn=batchify, num_workers=0))

    async def main() -> str:
        async with AsyncDataLoader(dataset(), **OPTIONS, batchify_fn=batchify, num_workers=2) as loader:
            return digest([batch async for batch in loader])

    assert run_on(main) == expected


def test_killed_workers_cost_no_sample(tmp_path: Path, leftovers: Any) -> None:
    expected = DataLoader(Pictures(), **OPTIONS, batchify_fn=Ragged(), num_workers=0)
    with DataLoader(Deadly(tmp_path), **OPTIONS, batchify_fn=Ragged(), num_workers=2) as loader:
        assert [digest(loader), digest(loader)] == [digest(expected), digest(expected)]
        assert loader.stats().restarts == 5


def large() -> Pictures:
    return Pictures(64, side=40)


@pytest.mark.parametrize("function", [Ragged(), Patches(10, 2)], ids=["ragged", "patches"])
def test_batches_hold_memory_of_the_loader_and_give_it_back(function: Any) -> None:
    gc.disable()
    try:
        with DataLoader(large(), 8, batchify_fn=function, num_workers=2, memory_limit=64 << 20) as loader:
            list(loader)  # the size of samples is known now
            memory = loader._runtime.open().memory
            kept = []
            for images, _ in loader:
                values = images.values if isinstance(function, Ragged) else images.pixel_values
                kept.append((values, values.copy()))
            assert memory.leased > 0
            for _ in range(2):
                assert len(list(loader)) == 8
            assert all(np.array_equal(values, before) for values, before in kept)
            del kept, images, values, _
            memory.free_pending()
            assert memory.leased == 0
            assert loader.stats().memory_bytes == 0
    finally:
        gc.enable()


def test_a_view_of_one_sample_holds_its_batch() -> None:
    with DataLoader(large(), 8, batchify_fn=Ragged(), num_workers=1, memory_limit=8 << 20) as loader:
        list(loader)
        views = []
        for images, labels in loader:
            views.append((images[3], int(labels[3])))
            del images, labels
        for _ in range(3):
            list(loader)
        for view, label in views:
            assert view.shape == large().shape(label)
            assert (view == label).all()


@pytest.mark.parametrize("way", combinations(WAYS))
def test_a_failed_sample_is_left_out(way: Any) -> None:
    executor, workers = way
    with DataLoader(
        Pictures(20, fail=(3, 4)),
        5,
        batchify_fn=Ragged(),
        executor=executor,
        num_workers=None if executor == "inline" else workers,
        on_error="skip",
    ) as loader:
        batches = list(loader)
    assert [len(images) for images, _ in batches] == [3, 5, 5, 5]
    assert [error.index for error in loader.errors] == [3, 4]
    assert sum((labels.tolist() for _, labels in batches), []) == [0, 1, 2, *range(5, 20)]


def test_a_sample_that_does_not_fit_is_named() -> None:
    with (
        DataLoader(Pictures(20), 5, batchify_fn=Group(Pad(to=(8, 8)), Stack()), num_workers=1) as loader,
        pytest.raises(BatchShapeError, match="sample 2 has shape") as caught,
    ):
        list(loader)
    assert caught.value.place == 2
    assert caught.value.shape == (12, 12, 3)
    assert caught.value.field == "[0]"


@pytest.mark.parametrize("num_workers", [0, 1])
def test_a_label_of_another_length_is_named_with_its_index(num_workers: int) -> None:
    samples = [(np.zeros((4, 4, 3), np.uint8), label) for label in (0, 1, 2, np.zeros(2), 4, 5)]
    with (
        DataLoader(samples, 2, sampler=[5, 4, 2, 3], num_workers=num_workers) as loader,
        pytest.raises(BatchShapeError, match=r"^field \[1\]: samples of different shapes") as caught,
    ):
        list(loader)
    error = caught.value
    assert (error.field, error.place, error.shape, error.expected) == ("[1]", 1, (2,), "()")
    assert error.index == 3
    assert "sample 1 has the index 3 in the dataset" in error.__notes__


class OneFails:
    """Dataset of arrays: item 1 fails, and item 0 is longer than the others."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        if index == 1:
            raise ValueError("damaged")
        return np.zeros(3 if index == 0 else 2)


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_the_index_is_that_of_the_sample_in_the_batch_and_not_of_one_that_failed(on_error: Any) -> None:
    with (
        DataLoader(OneFails(), 4, num_workers=0, on_error=on_error) as loader,
        pytest.raises(BatchShapeError) as caught,
    ):
        list(loader)
    assert (caught.value.place, caught.value.index) == (1, 2)


def test_a_class_that_overrides_call_alone_is_called() -> None:
    class Doubled(Ragged):
        def __call__(self, samples: Any, /, out: Any = None) -> Any:
            images, labels = super().__call__(samples, out)
            return images, labels * 2

    with DataLoader(Pictures(6), 3, batchify_fn=Doubled(), num_workers=1) as loader:
        assert [labels.tolist() for _, labels in loader] == [[0, 2, 4], [6, 8, 10]]


def test_torch_tensors_are_views() -> None:
    torch = pytest.importorskip("torch", reason="needs torch")
    with DataLoader(Prompts(), **OPTIONS, batchify_fn=Ragged(), num_workers=1, output="torch") as loader:
        for batch in loader:
            images = batch["images"]
            assert isinstance(images.values, torch.Tensor)
            for number, pictures in zip(batch["id"].tolist(), images, strict=True):
                assert [tuple(each.shape) for each in pictures] == [Pictures().shape(number)] * (number % 4)
                assert all((each == number + place).all() for place, each in enumerate(pictures))
                assert all(
                    each.untyped_storage().data_ptr() == images.values.untyped_storage().data_ptr()
                    for each in pictures
                )


@pytest.mark.jax
def test_jax_arrays() -> None:
    jax = pytest.importorskip("jax", reason="needs jax")
    with DataLoader(Pictures(8, 2), 4, batchify_fn=Ragged(), num_workers=0, output="jax") as loader:
        for images, labels in loader:
            assert isinstance(images.values, jax.Array)
            for number, image in zip(labels.tolist(), images, strict=True):
                assert image.shape == Pictures(8, 2).shape(number)
                assert (image == number).all()


def test_gluons_loader_takes_the_functions() -> None:
    from aioloader.mxnet import gluon

    loader = gluon.data.DataLoader(Prompts(10), 5, batchify_fn=Ragged(), num_workers=2)
    batches = list(loader)
    assert [[len(images) for images in batch["images"]] for batch in batches] == [
        [0, 1, 2, 3, 0],
        [1, 2, 3, 0, 1],
    ]
    assert digest(batches) == digest(DataLoader(Prompts(10), 5, batchify_fn=Ragged(), num_workers=0))


def test_an_epoch_that_is_cancelled_leaves_nothing(run_on: Any, leftovers: Any) -> None:
    async def take(loader: Any, count: int) -> None:
        """Cancel an epoch where it waits for a batch, after some batches."""
        with anyio.CancelScope() as scope:
            taken = 0
            async for images, labels in loader:
                assert all((image == label).all() for image, label in zip(images, labels, strict=True))
                taken += 1
                if taken > count:
                    scope.cancel()
        assert scope.cancelled_caught

    async def main() -> list[int]:
        dataset = Pictures(200, side=20, pause_s=0.001)
        async with AsyncDataLoader(dataset, 10, batchify_fn=Ragged(), num_workers=2, prefetch=2) as loader:
            for count in range(4):
                await take(loader, count)
            return [label async for _, labels in loader for label in labels.tolist()]

    assert run_on(main) == list(range(200))


COSTS = np.array([int(np.prod(Pictures(100).shape(index))) for index in range(100)])


def flat(batches: Any) -> list[int]:
    return [label for _, labels in batches for label in labels.tolist()]


@pytest.mark.parametrize("way", combinations(WAYS))
def test_batches_within_a_budget(way: Any) -> None:
    executor, workers = way
    sampler = aioloader.samplers.BudgetBatchSampler(COSTS, 1000)
    with DataLoader(
        Pictures(100),
        batch_sampler=sampler,
        batchify_fn=Ragged(),
        executor=executor,
        num_workers=None if executor == "inline" else workers,
        seed=3,
    ) as loader:
        length = len(loader)
        batches = list(loader)
        assert len(batches) == length
        assert [labels.tolist() for _, labels in batches] == [
            batch.indices.tolist() for batch in sampler.batches(3, 0)
        ]
        assert all(len(images.values) <= 1000 for images, _ in batches)
        assert sorted(flat(batches)) == list(range(100))
        again = flat(loader)
        assert sorted(again) == list(range(100))
        assert again != flat(batches)


@pytest.mark.parametrize("stop", [0, 1, 5])
@pytest.mark.parametrize("epoch", [0, 2])
def test_a_budget_is_resumed_in_the_middle(stop: int, epoch: int) -> None:
    def make() -> Any:
        sampler = aioloader.samplers.BudgetBatchSampler(COSTS, 1000, lookahead=8)
        return DataLoader(Pictures(100), batch_sampler=sampler, batchify_fn=Ragged(), num_workers=0, seed=1)

    first = make()
    for _ in range(epoch):
        list(first)
    batches = iter(first)
    taken = [next(batches) for _ in range(stop)]
    state = json.loads(json.dumps(first.state_dict()))
    second = make()
    second.load_state_dict(state)
    assert len(second) == len(list(batches))
    third = make()
    third.load_state_dict(state)
    whole = make()
    whole.set_epoch(epoch)
    assert flat(taken) + flat(third) == flat(whole)
    assert flat(third) == flat_of_epoch(make(), epoch + 1)


def flat_of_epoch(loader: Any, epoch: int) -> list[int]:
    loader.set_epoch(epoch)
    return flat(loader)


def test_a_state_of_another_budget_is_refused() -> None:
    def make(budget: int) -> Any:
        sampler = aioloader.samplers.BudgetBatchSampler(COSTS, budget)
        return DataLoader(Pictures(100), batch_sampler=sampler, batchify_fn=Ragged(), num_workers=0)

    with pytest.raises(aioloader.ResumeError, match="order"):
        make(1000).load_state_dict(make(2000).state_dict())
    with pytest.raises(aioloader.ResumeError, match="unit"):
        make(1000).load_state_dict(DataLoader(Pictures(100), 5, num_workers=0).state_dict())


@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_share_an_epoch_in_equally_many_steps(drop_last: bool) -> None:
    def rank(shard: Any) -> Any:
        sampler = aioloader.samplers.BudgetBatchSampler(COSTS, 1000, drop_last=drop_last, shard=shard)
        return DataLoader(Pictures(100), batch_sampler=sampler, batchify_fn=Ragged(), num_workers=0)

    loaders = [rank((number, 3)) for number in range(3)]
    parts = [[labels.tolist() for _, labels in loader] for loader in loaders]
    assert len({len(part) for part in parts}) == 1
    assert [len(rank((number, 3))) for number in range(3)] == [len(part) for part in parts]
    seen = [index for part in parts for batch in part for index in batch]
    if drop_last:
        assert len(seen) == len(set(seen))
    else:
        assert set(seen) == set(range(100))
    receipts = [loader.receipt() for loader in loaders]
    total = receipts[0] + receipts[1] + receipts[2]
    assert total.seen == len(set(seen))


def test_another_number_of_ranks_goes_on() -> None:
    def rank(shard: Any) -> Any:
        sampler = aioloader.samplers.BudgetBatchSampler(COSTS, 1000, shard=shard)
        return DataLoader(Pictures(100), batch_sampler=sampler, batchify_fn=Ragged(), num_workers=0)

    before = []
    for number in range(2):
        loader = rank((number, 2))
        batches = iter(loader)
        before += [next(batches), next(batches)]
        state = loader.state_dict()
    after = rank(None)
    after.load_state_dict(state)
    assert sorted(flat(before) + flat(after)) == list(range(100))


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_batches_from_a_cluster() -> None:
    pytest.importorskip("ray", reason="needs ray")
    from aioloader.executors import RayExecutor

    expected = digest(DataLoader(Prompts(), **OPTIONS, batchify_fn=Ragged(), num_workers=0))
    cloudpickle.register_pickle_by_value(shapes)
    try:
        with (
            local_cluster(),
            DataLoader(Prompts(), **OPTIONS, batchify_fn=Ragged(), executor=RayExecutor(2)) as loader,
        ):
            assert digest(loader) == expected
    finally:
        cloudpickle.unregister_pickle_by_value(shapes)
