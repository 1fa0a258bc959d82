"""Tests of `IterableDataset`: samples from an async iterable, pulled as fast as the caller takes batches."""

import asyncio
import os
import threading

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aioloader
from aioloader import AsyncDataLoader, DataLoader, IterableDataset, SampleError
from tests.aioloader.loader.samples import collect
from tests.cases import on_both_loops, with_cases
from tests.executors import pool


class Numbers:
    """Source of 0, 1, ...; records the number of its samples and how it was left."""

    def __init__(self, n=10**9, fail_at=None, error=None):
        self.n = n
        self.fail_at = fail_at
        self.error = error
        self.given = 0
        self.opened = self.closed = 0

    async def __call__(self):
        self.opened += 1
        try:
            for number in range(self.n):
                await anyio.lowlevel.checkpoint()
                if number == self.fail_at:
                    raise self.error
                self.given += 1
                yield number
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.lowlevel.checkpoint()
                self.closed += 1


def as_lists(batches):
    return [np.asarray(batch).tolist() for batch in batches]


def test_a_source_with_columns_but_without_a_length_is_iterated():
    class Stream:
        def __iter__(self):
            return iter(range(4))

        def __getitem__(self, name):
            raise KeyError(name)

    with DataLoader(IterableDataset(Stream()), 2) as loader:
        assert as_lists(loader) == [[0, 1], [2, 3]]


@with_cases("executor", ["inline", "process"])  # without work for the executor: none is started
@with_cases(
    ("last_batch", "expected"),
    [
        ("keep", [[[0, 1, 2], [3, 4, 5], [6]]] * 2),
        ("discard", [[[0, 1, 2], [3, 4, 5]]] * 2),
        ("rollover", [[[0, 1, 2], [3, 4, 5]], [[6, 0, 1], [2, 3, 4]]]),
    ],
)
@on_both_loops
async def test_batches_of_two_passes(executor, last_batch, expected):
    numbers = Numbers(7)
    options = {"executor": executor, "last_batch": last_batch}
    async with AsyncDataLoader(IterableDataset(numbers), 3, **options) as loader:
        assert [as_lists(await collect(loader)) for _ in range(2)] == expected
    assert numbers.opened == numbers.closed == 2


@with_cases("executor", ["inline", "process"])
def test_the_blocking_loader_takes_them_too(executor, leftovers):
    numbers = Numbers(7)
    with DataLoader(IterableDataset(numbers), 3, executor=executor) as loader:
        assert as_lists(loader) == [[0, 1, 2], [3, 4, 5], [6]]
        for batch in loader:
            assert batch.tolist() == [0, 1, 2]
            break
        assert as_lists(list(loader)) == [[0, 1, 2], [3, 4, 5], [6]]
    assert numbers.opened == numbers.closed == 3


def squared(x):
    return np.full((3, 4), x * x, np.float32), x, os.getpid()


async def captioned(image, x, pid):
    await anyio.lowlevel.checkpoint()
    return image, x, pid, f"caption {x}"


@on_both_loops
async def test_transforms_run_where_those_of_other_datasets_do(executor):
    async def doubled(x):
        await anyio.lowlevel.checkpoint()
        return 2 * x

    dataset = IterableDataset(Numbers(7)).transform(doubled).transform(squared).transform(captioned)
    async with AsyncDataLoader(dataset, 3, **pool(executor, 1)) as loader:
        batches = await collect(loader)
    assert [numbers.tolist() for _, numbers, _, _ in batches] == [[0, 2, 4], [6, 8, 10], [12]]
    assert batches[0][3] == ["caption 0", "caption 2", "caption 4"]
    assert (batches[1][0][2] == 100).all()
    assert batches[1][0].dtype == np.float32
    assert ({*batches[0][2].tolist()} == {os.getpid()}) == (executor not in ("process", "fork"))


@with_cases("prefetch", [1, 4])
@on_both_loops
async def test_samples_are_taken_only_as_fast_as_batches_are(prefetch):
    numbers = Numbers()
    async with AsyncDataLoader(IterableDataset(numbers), 5, executor="inline", prefetch=prefetch) as loader:
        taken = 0
        async for _ in loader:
            taken += 1
            await anyio.wait_all_tasks_blocked()
            assert numbers.given == 5 * (taken + prefetch)
            if taken == 3:
                break
    assert numbers.closed == 1


def test_the_blocking_loader_runs_no_further_ahead():
    numbers = Numbers()
    with DataLoader(IterableDataset(numbers), 5, executor="inline", prefetch=2) as loader:
        for taken, _ in enumerate(loader, 1):
            assert numbers.given <= 5 * (taken + 2 + 3)  # delivered batches wait for the caller
            if taken == 20:
                break


class RequestFailure(Exception):
    """Error class of a source."""


@with_cases(
    ("last_batch", "before"),
    [("keep", [[0, 1, 2], [3, 4]]), ("discard", [[0, 1, 2]]), ("rollover", [[0, 1, 2]])],
)
@on_both_loops
async def test_an_error_of_the_source_ends_the_pass_at_its_place(last_batch, before):
    numbers = Numbers(fail_at=5, error=RequestFailure("lost"))
    seen = []
    options = {"num_workers": 0, "last_batch": last_batch}
    async with AsyncDataLoader(IterableDataset(numbers), 3, **options) as loader:
        with pytest.raises(RequestFailure, match="lost"):
            async for batch in loader:
                seen.append(batch.tolist())
    assert seen == before
    assert numbers.closed == 1


async def test_a_source_that_looks_like_being_cancelled_is_in_error():
    async def source():
        yield 1
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task

    async with AsyncDataLoader(IterableDataset(source), 1, num_workers=0) as loader:
        batches = aiter(loader)
        await anext(batches)
        with anyio.fail_after(30), pytest.raises(aioloader.LoaderError, match="source raised CancelledError"):
            await anext(batches)


def failing(x):
    if x == 4:
        raise ValueError("four")
    return x


@with_cases("where", ["worker", "loop"])
def test_failed_samples_follow_the_policy_and_are_named_by_their_number(where):
    async def awaited(x):
        return failing(x)

    fn = failing if where == "worker" else awaited

    async def main(policy, fn=fn, size=3):
        dataset = IterableDataset(Numbers(7)).transform(fn)
        async with AsyncDataLoader(dataset, size, executor="thread", on_error=policy) as loader:
            return as_lists(await collect(loader)), loader.errors

    assert anyio.run(main, "skip")[0] == [[0, 1, 2], [3, 5], [6]]
    batches, (error,) = anyio.run(main, "replace")
    assert batches == [[0, 1, 2], [3, 5, 5], [6]]
    assert (error.index, error.position, error.dataset, error.replaced_by) == (4, 4, "IterableDataset", 5)
    with pytest.raises(SampleError, match="IterableDataset: sample at index 4 failed in transform"):
        anyio.run(main, "raise")
    with pytest.raises(aioloader.LoaderError, match="an iterable dataset has no other items"):
        anyio.run(main, "replace", fn, 1)


# --- sources ---


@on_both_loops
async def test_a_stream_goes_on_in_the_next_pass_and_stays_open():
    send, receive = anyio.create_memory_object_stream(100)
    for number in range(20):
        send.send_nowait(number)
    async with AsyncDataLoader(IterableDataset(receive), 2, num_workers=0, prefetch=1) as loader:
        first = []
        async for batch in loader:
            first += batch.tolist()
            if len(first) == 4:
                break
        await anyio.wait_all_tasks_blocked()
        send.close()
        rest = np.concatenate(await collect(loader)).tolist()
    assert first == [0, 1, 2, 3]
    assert rest[-1] == 19
    assert receive.statistics().open_receive_streams == 1
    receive.close()


async def test_functions_are_called_for_every_pass_with_the_epoch():
    told = []

    async def awaited(epoch):
        told.append(epoch)

        async def numbers():
            yield epoch

        return numbers()

    async with AsyncDataLoader(IterableDataset(awaited), 1, num_workers=0) as loader:
        assert as_lists(await collect(loader)) == [[0]]
        assert as_lists(await collect(loader)) == [[1]]
        loader.set_epoch(7)
        assert as_lists(await collect(loader)) == [[7]]
    assert told == [0, 1, 7]


async def test_an_async_generator_is_good_for_one_pass():
    async with AsyncDataLoader(IterableDataset(Numbers(3)()), 2, num_workers=0) as loader:
        assert as_lists(await collect(loader)) == [[0, 1], [2]]
        with pytest.raises(RuntimeError, match=r"was iterated before.*pass IterableDataset the generator"):
            await collect(loader)


class Own(IterableDataset):
    """Subclass with its own iterator."""

    async def __aiter__(self):
        for number in range(5):
            yield number


async def test_a_subclass_may_be_its_own_source():
    async with AsyncDataLoader(Own(), 2, num_workers=0) as loader:
        assert as_lists(await collect(loader)) == [[0, 1], [2, 3], [4]]
    async with AsyncDataLoader(Own().transform(lambda x: -x), 2, num_workers=0) as loader:
        assert as_lists(await collect(loader)) == [[0, -1], [-2, -3], [-4]]
        assert as_lists(await collect(loader)) == [[0, -1], [-2, -3], [-4]]


async def test_it_can_be_looked_at_by_itself():
    async def tripled(x):
        return 3 * x

    numbers = Numbers(4)
    dataset = IterableDataset(numbers).transform(lambda x: x + 1).transform(tripled)
    assert [sample async for sample in dataset] == [3, 6, 9, 12]
    assert numbers.closed == 1


@with_cases("source", [[1, 2], range(3), 7, "text", None, iter([1])])
def test_what_is_no_stream_is_refused(source):
    with pytest.raises(TypeError, match="source"):
        IterableDataset(source)


async def test_a_function_that_gives_none_is_an_error_of_the_pass():
    async with AsyncDataLoader(IterableDataset(lambda: 7), 2, num_workers=0) as loader:
        with pytest.raises(TypeError, match="returned a int, which is not iterable"):
            await collect(loader)


@with_cases("given", [Numbers(3)(), Numbers(3).__call__])
def test_a_loader_takes_it_in_its_wrapping_only(given):
    with pytest.raises(TypeError, match=r"pass the loader aioloader.IterableDataset\(\.\.\.\) of it"):
        DataLoader(given, 2)


# --- options that need indices ---


@with_cases(
    ("options", "name"),
    [
        ({"shuffle": True}, "shuffle"),
        ({"sampler": [1, 2]}, "sampler"),
        ({"batch_size": None, "batch_sampler": [[1]]}, "batch_sampler"),
        ({"shard": (0, 2)}, "shard"),
    ],
)
@with_cases("cls", [AsyncDataLoader, DataLoader])
def test_options_that_need_numbers_are_refused(cls, options, name):
    with pytest.raises(ValueError, match=f"^{name} needs a dataset whose samples have indices"):
        cls(IterableDataset(Numbers(3)), **{"batch_size": 2, **options})


async def test_it_has_no_length_and_no_receipt_that_could_be_checked():
    async with AsyncDataLoader(IterableDataset(Numbers(3)), 2, num_workers=0, progress=True) as loader:
        with pytest.raises(TypeError, match="the number of samples of an IterableDataset is not known"):
            len(loader)
        await collect(loader)
        assert loader.receipt().seen == 3
        with pytest.raises(TypeError, match="cannot be computed again"):
            loader.check_receipt(loader.receipt())
    with pytest.raises(TypeError, match="has no len"):
        len(IterableDataset(Numbers(3)))


# --- implementation ---


async def test_nothing_is_started_for_samples_that_come_as_they_are(leftovers):
    async def awaited(x):
        return x

    before = set(threading.enumerate())
    async with AsyncDataLoader(IterableDataset(Numbers(40)).transform(awaited), 4) as loader:
        async for _ in loader:
            assert not leftovers().get("child processes")
            assert not [
                t for t in set(threading.enumerate()) - before if t.name.startswith("aioloader-worker")
            ]


async def test_a_silent_source_is_reported_as_such(caplog):
    told = asyncio.Event()

    async def source():
        await told.wait()
        yield 1

    async def tell():
        while "waiting for the samples of the dataset's source" not in caplog.text:
            await asyncio.sleep(0.01)
        told.set()

    async with AsyncDataLoader(IterableDataset(source), 1, num_workers=0, stall_timeout=0.2) as loader:
        telling = asyncio.ensure_future(tell())
        with anyio.fail_after(60):
            assert as_lists(await collect(loader)) == [[1]]
        await telling
