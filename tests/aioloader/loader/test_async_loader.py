"""Tests of AsyncDataLoader: order, options, task life and errors, under asyncio and trio."""

import asyncio
import gc
import re
import threading
import weakref

import anyio
import numpy as np
import pytest

import aioloader
from aioloader import (
    ArrayDataset,
    AsyncDataLoader,
    DataLoader,
    ImageFolderDataset,
    SampleError,
)
from aioloader.errors import BatchMemoryError
from aioloader.executors import ThreadExecutor
from aioloader.samplers import RandomSampler
from aioloader.tools.draw import draw_folder
from aioloader.transforms import Resize
from tests.aioloader.loader.samples import Numbers, collect, labels, turns_of_the_loop
from tests.cases import on_both_loops, with_cases
from tests.executors import pool

TWO = {"batch_size": 2}


async def test_batches_arrive_in_order(executor):
    async with AsyncDataLoader(Numbers(23), 5, **pool(executor, 2)) as loader:
        batches = await collect(loader)
    assert labels(batches) == [list(range(start, min(start + 5, 23))) for start in range(0, 23, 5)]
    assert (batches[2][0].shape, batches[2][0].dtype) == ((5, 4, 4), np.int32)
    assert (batches[2][0][:, 1, 2] == batches[2][1]).all()


@on_both_loops
async def test_in_memory_data_need_no_thread(monkeypatch):
    started = []
    start = threading.Thread.start
    monkeypatch.setattr(
        threading.Thread, "start", lambda thread: (started.append(thread.name), start(thread))
    )
    async with AsyncDataLoader(ArrayDataset(np.arange(10), np.arange(10)), 5, num_workers=2) as loader:
        batches = [*await collect(loader), *await collect(loader)]
    assert labels(batches) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]] * 2
    assert not [name for name in started if name.startswith("aioloader")]


async def test_every_epoch_has_its_own_order_and_a_seed_repeats_it():
    async def two_epochs(seed):
        async with AsyncDataLoader(Numbers(40), 7, shuffle=True, num_workers=0, seed=seed) as loader:
            return labels(await collect(loader)), labels(await collect(loader))

    first, second = await two_epochs(3)
    assert sorted(sum(first, [])) == sorted(sum(second, [])) == list(range(40))
    assert first != second
    assert (first, second) == await two_epochs(3)
    assert (first, second) != await two_epochs(4)


async def test_leaving_early_drops_what_would_have_been_carried_over():
    loader = AsyncDataLoader(Numbers(7), 3, last_batch="rollover", num_workers=0)
    await collect(loader)
    async for _ in loader:
        break
    assert labels(await collect(loader))[0] == [0, 1, 2]


async def test_an_index_outside_of_the_dataset_is_an_error_at_its_place():
    loader = AsyncDataLoader(Numbers(5), 2, sampler=[0, 1, 9], executor="thread")
    batches = []
    with pytest.raises(IndexError, match="index 9, but Numbers has 5"):
        async for batch in loader:
            batches.append(batch)
    assert labels(batches) == [[0, 1]]


@with_cases(
    ("options", "error", "message"),
    [
        ({}, ValueError, "batch_size must be specified unless batch_sampler is specified"),
        ({**TWO, "shuffle": True, "sampler": [1]}, ValueError, "shuffle must not be specified if sampler is"),
        ({**TWO, "batch_sampler": [[1]]}, ValueError, "must not be specified if batch_sampler is specified."),
        ({**TWO, "last_batch": "zz"}, ValueError, "must be one of 'keep', 'discard', or 'rollover'"),
        ({"batch_size": 0}, ValueError, "batch_size must be at least 1, got 0"),
        ({**TWO, "timeout": 0}, ValueError, "timeout must be more than 0"),
        ({**TWO, "timeout": float("nan")}, ValueError, "timeout must be more than 0"),
        ({**TWO, "executor": "gpu"}, ValueError, "executor must be one of"),
        ({**TWO, "on_error": "ignore"}, ValueError, "on_error must be one of"),
        ({**TWO, "seed": -1}, ValueError, "seed must be at least 0"),
        ({**TWO, "shard": (2, 2)}, ValueError, "0 <= index < count"),
        ({**TWO, "memory_limit": 1}, ValueError, "memory_limit is in bytes and must be at least 4096"),
        *(
            ({**TWO, option: 2.5}, TypeError, f"{option} must be a whole number, got 2.5")
            for option in ("batch_size", "num_workers", "prefetch", "seed")
        ),
        ({**TWO, "sampler": 5}, TypeError, "sampler must be an iterable of indices, got 5"),
        ({**TWO, "sampler": "random"}, TypeError, "sampler must be an iterable of indices, got 'random'"),
        ({**TWO, "sampler": RandomSampler}, TypeError, "sampler must be an iterable of indices, got <class"),
        ({"batch_sampler": 5}, TypeError, "batch_sampler must be an iterable of lists of indices, got 5"),
        ({**TWO, "batchify_fn": 5}, TypeError, "must be a function that takes a list of samples, got 5"),
        ({**TWO, "batchify_fn": aioloader.batchify.Pad}, TypeError, "did you mean Pad()?"),
        ({**TWO, "executor": ThreadExecutor}, TypeError, "executor must be a name or an Executor"),
    ],
)
def test_wrong_options_are_refused_at_once(options, error, message):
    with pytest.raises(error, match=re.escape(message)):
        AsyncDataLoader(Numbers(), **options)


def test_samplers_are_not_iterated_to_be_checked():
    sampler = aioloader.samplers.RandomSampler(9, seed=1)
    expected = list(aioloader.samplers.RandomSampler(9, seed=1))
    AsyncDataLoader(Numbers(9), 2, sampler=sampler)
    assert list(sampler) == expected


def test_a_plain_for_names_the_other_class():
    with pytest.raises(TypeError, match=r"aioloader\.DataLoader"):
        iter(AsyncDataLoader(Numbers(), 2))


async def test_break_ends_the_epoch_and_the_next_loop_is_the_next_epoch(executor):
    async with AsyncDataLoader(Numbers(30), 5, **pool(executor, 2), shuffle=True) as loader:
        async for batch in loader:
            first = batch[1].tolist()
            break
        second = labels(await collect(loader))
    async with AsyncDataLoader(Numbers(30), 5, **pool(executor, 2), shuffle=True) as loader:
        epochs = [labels(await collect(loader)) for _ in range(2)]
    assert first == epochs[0][0]
    assert second == epochs[1]


async def test_break_keeps_the_workers():
    async with AsyncDataLoader(Numbers(30), 5, num_workers=2) as loader:
        async for _ in loader:
            break
        executor = loader._runtime.open().executor
        pids = executor.pids
        await collect(loader)
        assert executor.pids == pids
        assert len(pids) == 2


async def test_break_gives_the_memory_back():
    async with AsyncDataLoader(Numbers(500, 0.001), 5, num_workers=2) as loader:
        for _ in range(3):
            await anext(aiter(loader))
        with anyio.fail_after(30):
            while loader.stats().memory_bytes:
                await anyio.sleep(0.005)


@with_cases("entered", [True, False])
async def test_an_exception_from_the_body_arrives_as_itself(executor, entered):
    loader = AsyncDataLoader(Numbers(30), 5, **pool(executor, 2))
    mine = ValueError("mine")
    with pytest.raises(ValueError, match="mine") as caught:
        if entered:
            async with loader:
                async for _ in loader:
                    raise mine
        else:
            async for _ in loader:
                raise mine
    assert caught.value is mine
    assert mine.__cause__ is None
    await loader.aclose()


async def test_a_sample_error_comes_at_its_place_as_itself(executor):
    batches = []
    async with AsyncDataLoader(Numbers(30, fail=[12]), 5, **pool(executor, 2)) as loader:
        with pytest.raises(SampleError, match="no item 12") as caught:
            async for batch in loader:
                batches.append(batch)
        error = caught.value
        assert loader.errors == [error]
        with pytest.raises(SampleError):
            await collect(loader)
    assert labels(batches) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    assert (error.dataset, error.index, error.position, error.stage) == ("Numbers", 12, 12, "dataset")
    assert type(error.__cause__) is LookupError


async def test_skip_leaves_failed_samples_out_and_records_them(executor):
    dataset = Numbers(20, fail=[0, 7, 8, 15, 16, 17, 18, 19])
    async with AsyncDataLoader(dataset, 5, **pool(executor, 2), on_error="skip") as loader:
        batches = await collect(loader)
        assert labels(batches) == [[1, 2, 3, 4], [5, 6, 9], [10, 11, 12, 13, 14]]
        assert all((images[:, 0, 0] == numbers).all() for images, numbers in batches)
        assert [error.index for error in loader.errors] == [0, 7, 8, 15, 16, 17, 18, 19]
        assert loader.stats().skipped == 8


async def test_skip_gives_up_beyond_max_errors():
    dataset = Numbers(20, fail=[3, 7, 12])
    loader = AsyncDataLoader(dataset, 5, num_workers=0, on_error="skip", max_errors=2)
    batches = []
    with pytest.raises(aioloader.TooManyErrorsError) as caught:
        async for batch in loader:
            batches.append(batch)
    assert (caught.value.max_errors, caught.value.count) == (2, 3)
    assert caught.value.__cause__.index == 12
    assert len(batches) == 2


async def test_a_cancelled_anext_loses_nothing(executor):
    async with AsyncDataLoader(Numbers(12, 0.02), 3, **pool(executor, 1)) as loader:
        batches = aiter(loader)
        seen, cancelled = [], 0
        while len(seen) < 4:
            # The inline executor starts a batch again: give it the time in the end.
            with anyio.move_on_after(0.03 if cancelled < 5 else 60) as scope:
                seen.append(await anext(batches))
            cancelled += scope.cancelled_caught
    assert labels(seen) == [[0, 1, 2], [3, 4, 5], [6, 7, 8], [9, 10, 11]]
    assert cancelled > 0


async def test_two_tasks_may_not_wait_for_one_iterator():
    async with AsyncDataLoader(Numbers(10, 0.05), 5, executor="thread") as loader:
        batches = aiter(loader)
        first = asyncio.create_task(anext(batches))
        await asyncio.sleep(0)
        with pytest.raises(RuntimeError, match="another task"):
            await anext(batches)
        assert (await first)[1].tolist() == [0, 1, 2, 3, 4]


async def test_a_closed_loader_says_so():
    loader = AsyncDataLoader(Numbers(), 5, executor="thread")
    batches = aiter(loader)
    await anext(batches)
    await loader.aclose()
    await loader.aclose()
    with pytest.raises(aioloader.LoaderClosedError):
        for _ in range(100):
            await anext(batches)
    with pytest.raises(aioloader.LoaderClosedError, match="make a new one"):
        aiter(loader)


def test_trio_without_async_with_is_refused_before_an_epoch_is_spent():
    async def main():
        loader = AsyncDataLoader(Numbers(20), 5, executor="thread", shuffle=True)
        with pytest.raises(RuntimeError, match="async with loader"):
            async for _ in loader:
                pass
        assert loader.state_dict()["epoch"] == 0
        async with loader:
            return labels(await collect(loader))

    first = anyio.run(main, backend="trio")
    with DataLoader(Numbers(20), 5, num_workers=0, shuffle=True) as same:
        assert labels(same) == first


def test_one_loader_serves_asyncio_run_twice():
    loader = AsyncDataLoader(Numbers(10), 5, num_workers=1)
    for _ in range(2):
        assert labels(asyncio.run(collect(loader))) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    asyncio.run(loader.aclose())


async def test_a_dropped_loader_is_collected_while_an_epoch_runs():
    loader = AsyncDataLoader(Numbers(1000, 0.001), 5, executor="thread", num_workers=2)
    batches = aiter(loader)
    await anext(batches)
    runtime = weakref.ref(loader._runtime)
    del loader, batches
    gc.collect()
    with anyio.fail_after(30):
        while runtime() is not None:
            await anyio.sleep(0.005)
            gc.collect()


@pytest.mark.parametrize("executor", ["thread", "process"])
async def test_a_small_memory_limit_slows_but_does_not_stop(executor):
    options = {**pool(executor, 2), "memory_limit": 3 * 4096, "prefetch": 8}
    async with AsyncDataLoader(Numbers(200), 10, **options) as loader:
        batches = await collect(loader)
    assert labels(batches) == [list(range(start, start + 10)) for start in range(0, 200, 10)]
    assert all((images[:, 0, 0] == numbers).all() for images, numbers in batches)


async def test_a_batch_larger_than_memory_is_a_named_error(executor):
    options = {**pool(executor, 1), "memory_limit": 4096}
    async with AsyncDataLoader(Numbers(2000), 1000, **options) as loader:
        with pytest.raises(BatchMemoryError, match="memory_limit=4096") as caught:
            await collect(loader)
    assert (caught.value.samples, caught.value.memory_limit, caught.value.held) == (1000, 4096, 0)
    assert caught.value.nbytes > 4096


async def test_a_batch_that_fits_only_before_it_is_decoded_names_all_bytes_that_it_needs(tmp_path, executor):
    draw_folder(tmp_path, count=8, classes=2)
    encoded = sum(file.stat().st_size for file in tmp_path.glob("*/*.jpg"))
    dataset = ImageFolderDataset(tmp_path).transform_first(Resize((128, 128)))
    options = {**pool(executor, 1), "memory_limit": encoded + 3 * 4096}
    async with AsyncDataLoader(dataset, 8, **options) as loader:
        with pytest.raises(BatchMemoryError) as caught:
            await collect(loader)
    assert caught.value.nbytes >= encoded + 8 * 128 * 128 * 3
    assert caught.value.nbytes > caught.value.memory_limit


async def test_the_loop_turns_while_the_inline_executor_works():
    async with turns_of_the_loop() as turns:
        await collect(AsyncDataLoader(Numbers(20, 0.003), 10, num_workers=0))
    assert len(turns) >= 15
