"""Tests of loaders whose batches have samples of different shapes: the same everywhere, leased, and in every output."""

from __future__ import annotations

import functools
import gc
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest

import aioloader
from aioloader import AsyncDataLoader, DataLoader
from aioloader.batchify import Group, Pad, Patches, Ragged, Stack
from aioloader.errors import BatchShapeError
from tests.aioloader.cluster import local_cluster
from tests.aioloader.loader.samples import Made, digest
from tests.aioloader.loader.shapes import Deadly, Pictures, Prompts
from tests.cases import on_both_loops, with_cases

FUNCTIONS: dict[str, tuple[Any, Any]] = {
    "ragged": (Pictures, Ragged()),
    "nested": (Prompts, Ragged()),
    "padded": (Pictures, Group(Pad(7, multiple_of=8, sizes=True), Stack())),
    "patches": (Pictures, Patches(2, 2)),
    "prompts": (Prompts, Patches(2, 2)),
}
OPTIONS: dict[str, Any] = {"batch_size": 7, "shuffle": True, "seed": 5}


@functools.cache
def expected(name: str) -> list[str]:
    """Return the digests of two epochs without workers."""
    dataset, function = FUNCTIONS[name]
    loader = DataLoader(dataset(), **OPTIONS, batchify_fn=function, num_workers=0)
    return [digest(loader), digest(loader)]


@pytest.mark.parametrize("executor", ["thread", "process"])
@with_cases("name", FUNCTIONS)
def test_batches_are_the_same_in_every_executor(name: str, executor: str) -> None:
    dataset, function = FUNCTIONS[name]
    options = {**OPTIONS, "batchify_fn": function, "executor": executor, "num_workers": 2}
    with DataLoader(dataset(), **options) as loader:
        assert [digest(loader), digest(loader)] == expected(name)


@with_cases("name", FUNCTIONS)
@on_both_loops
async def test_async_batches_are_the_same(name: str, no_blocking: None) -> None:
    dataset, function = FUNCTIONS[name]
    wanted = (await anyio.to_thread.run_sync(expected, name))[0]
    async with AsyncDataLoader(dataset(), **OPTIONS, batchify_fn=function, num_workers=2) as loader:
        assert digest([batch async for batch in loader]) == wanted


def test_killed_workers_cost_no_sample(tmp_path: Path, leftovers: Any) -> None:
    with DataLoader(Deadly(tmp_path), **OPTIONS, batchify_fn=Ragged(), num_workers=2) as loader:
        assert [digest(loader), digest(loader)] == expected("ragged")
        assert loader.stats().restarts == 2


@pytest.mark.parametrize("function", [Ragged(), Patches(10, 2)], ids=["ragged", "patches"])
def test_batches_hold_memory_of_the_loader_and_give_it_back(function: Any) -> None:
    dataset = Pictures(64, side=40)
    gc.disable()
    try:
        with DataLoader(dataset, 8, batchify_fn=function, num_workers=2, memory_limit=64 << 20) as loader:
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


def test_a_sample_that_does_not_fit_is_named() -> None:
    with (
        DataLoader(Pictures(20), 5, batchify_fn=Group(Pad(to=(8, 8)), Stack()), num_workers=1) as loader,
        pytest.raises(BatchShapeError, match="sample 2 has shape") as caught,
    ):
        list(loader)
    assert (caught.value.place, caught.value.shape, caught.value.field) == (2, (12, 12, 3), "[0]")


@with_cases("num_workers", [0, 1])
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


@with_cases("on_error", ["skip", "replace"])
def test_the_index_is_that_of_the_sample_in_the_batch_and_not_of_one_that_failed(on_error: Any) -> None:
    def make(index: int) -> Any:
        if index == 1:
            raise ValueError("damaged")
        return np.zeros(3 if index == 0 else 2)

    with (
        DataLoader(Made(4, make), 4, num_workers=0, on_error=on_error) as loader,
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
            memory = images.values.untyped_storage().data_ptr()
            for number, pictures in zip(batch["id"].tolist(), images, strict=True):
                assert [tuple(each.shape) for each in pictures] == [Pictures().shape(number)] * (number % 4)
                assert all((each == number + place).all() for place, each in enumerate(pictures))
                assert all(each.untyped_storage().data_ptr() == memory for each in pictures)


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

    batches = list(gluon.data.DataLoader(Prompts(10), 5, batchify_fn=Ragged(), num_workers=2))
    assert [[len(images) for images in batch["images"]] for batch in batches] == [
        [0, 1, 2, 3, 0],
        [1, 2, 3, 0, 1],
    ]
    assert digest(batches) == digest(DataLoader(Prompts(10), 5, batchify_fn=Ragged(), num_workers=0))


COSTS = np.array([int(np.prod(Pictures(100).shape(index))) for index in range(100)])


def budgeted(budget: int = 1000, shard: Any = None, **options: Any) -> Any:
    sampler = aioloader.samplers.BudgetBatchSampler(COSTS, budget, shard=shard)
    return DataLoader(Pictures(100), batch_sampler=sampler, batchify_fn=Ragged(), num_workers=0, **options)


def labels_of(batches: Any) -> list[list[int]]:
    return [labels.tolist() for _, labels in batches]


def test_batches_within_a_budget() -> None:
    sampler = aioloader.samplers.BudgetBatchSampler(COSTS, 1000)
    loader = budgeted(seed=3)
    for epoch in range(2):
        assert len(loader) == sampler.count(3, epoch)
        batches = list(loader)
        assert labels_of(batches) == [batch.indices.tolist() for batch in sampler.batches(3, epoch)]
        assert all(len(images.values) <= 1000 for images, _ in batches)


def test_a_state_of_another_budget_is_refused() -> None:
    with pytest.raises(aioloader.ResumeError, match="order"):
        budgeted(1000).load_state_dict(budgeted(2000).state_dict())
    with pytest.raises(aioloader.ResumeError, match="unit"):
        budgeted().load_state_dict(DataLoader(Pictures(100), 5, num_workers=0).state_dict())


def test_another_number_of_ranks_goes_on() -> None:
    seen = []
    for number in range(2):
        loader = budgeted(shard=(number, 2))
        batches = iter(loader)
        seen += labels_of([next(batches), next(batches)])
        state = loader.state_dict()
    after = budgeted()
    after.load_state_dict(state)
    assert sorted(sum(seen + labels_of(after), [])) == list(range(100))


@pytest.mark.ray
@pytest.mark.filterwarnings("ignore")  # Ray's own
def test_batches_from_a_cluster() -> None:
    pytest.importorskip("ray", reason="needs ray")
    from aioloader.executors import RayExecutor

    with (
        local_cluster(),
        DataLoader(Prompts(), **OPTIONS, batchify_fn=Ragged(), executor=RayExecutor(2)) as loader,
    ):
        assert [digest(loader)] == expected("nested")[:1]
