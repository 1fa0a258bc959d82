"""Tests of async transforms: awaited in the caller's loop, between segments; errors, limits, cancellation."""

import asyncio
import functools
import os
import signal
import threading

import anyio
import anyio.lowlevel
import numpy as np
import pytest

import aioloader
from aioloader import AsyncDataLoader, DataLoader, SampleError, SimpleDataset
from aioloader.errors import StalledError
from aioloader.transforms import Cast, Compose, RandomApply, Transform
from tests.aioloader.loader.samples import Numbers, collect, everything, labels, numbers
from tests.cases import on_both_loops, with_cases


def plus_ten(image, label):
    return image + 10, label


async def fetched(image, label):
    await anyio.lowlevel.checkpoint()
    return image * 2, f"caption {label}", label


def marked(image, caption, label):
    return image + 1, caption.upper(), np.float32(label), os.getpid()


# --- where a chain is cut ---


@pytest.mark.parametrize(
    ("executor", "backend"), [("inline", "trio"), ("thread", "asyncio"), ("process", "asyncio")]
)
def test_sync_async_sync_chains_give_the_samples_in_order(executor, backend):
    dataset = SimpleDataset(Numbers(23)).transform(plus_ten).transform(fetched).transform(marked)
    batches = everything(dataset, backend, batch_size=5, executor=executor)
    assert [len(batch[0]) for batch in batches] == [5, 5, 5, 5, 3]
    seen = 0
    for images, captions, numbers_, pids in batches:
        assert images.dtype == np.int32
        assert numbers_.dtype == np.float32
        for image, caption, number, pid in zip(images, captions, numbers_, pids, strict=True):
            assert (image == (seen + 10) * 2 + 1).all()
            assert (caption, number) == (f"CAPTION {seen}", seen)
            assert (pid == os.getpid()) == (executor != "process")
            seen += 1
    assert seen == 23


@with_cases(("executor", "backend"), [("inline", "asyncio"), ("thread", "trio")])
def test_async_stages_at_the_start_at_the_end_and_in_a_row(executor, backend):
    async def double(x):
        await anyio.lowlevel.checkpoint()
        return 2 * x

    async def plus(x):
        return x + 1

    for n, dataset in enumerate(
        [
            numbers().transform(double),
            numbers().transform(double).transform(plus),
            numbers().transform(double).transform(lambda x: x + 1).transform(double).transform(plus),
            numbers().transform(double).transform(plus).transform(lambda x: x - 1),
        ]
    ):
        expected = [2 * x + (0, 1, 2 * x + 3, 0)[n] for x in range(12)]
        batches = everything(dataset, backend, executor=executor)
        assert np.concatenate(batches).tolist() == expected


def test_photographs_with_captions(photo_rec):
    chain = aioloader.transforms.RandomResizedCrop(32)

    async def with_caption(image, label):
        await anyio.lowlevel.checkpoint()
        return image, f"class {int(label)}"

    plain = aioloader.ImageRecordDataset(photo_rec).transform_first(chain)
    expected = everything(plain, executor="inline", batch_size=8, shuffle=True)
    found = everything(plain.transform(with_caption), executor="thread", batch_size=8, shuffle=True)
    for (images, classes), (same, captions) in zip(expected, found, strict=True):
        assert (images == same).all()
        assert captions == [f"class {int(each)}" for each in classes]


@with_cases("then", [None, plus_ten])
def test_a_batchify_function_of_the_callers_comes_last(executor, then):
    async def noted(image, label):
        await anyio.lowlevel.checkpoint()
        return image, label

    def batchify(samples):
        return np.stack([image for image, _ in samples]).sum(), [label for _, label in samples]

    dataset = SimpleDataset(Numbers(10)).transform(noted)
    if then is not None:
        dataset = dataset.transform(then)
    found = everything(dataset, executor=executor, batchify_fn=batchify)
    more = 0 if then is None else 10
    assert [each for _, each in found] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9]]
    assert [total for total, _ in found] == [16 * sum(k + more for k in each) for _, each in found]


def test_samples_without_a_row_and_ragged_ones_pass():
    async def ragged(x):
        return np.arange(x % 3), {"text": str(x)}

    (arrays, texts), *_ = everything(
        numbers().transform(ragged),
        executor="inline",
        batchify_fn=lambda samples: ([array for array, _ in samples], [text for _, text in samples]),
    )
    assert [len(each) for each in arrays] == [0, 1, 2, 0]
    assert texts == [{"text": str(x)} for x in range(4)]


# --- what counts as async ---


class Doubler:
    async def __call__(self, x):
        await anyio.lowlevel.checkpoint()
        return 2 * x

    async def method(self, x):
        return await self(x)


class AsyncTransform(Transform):
    async def apply(self, x, rng, out=None):
        return 2 * x


async def times(factor, x):
    return factor * x


@with_cases(
    "fn",
    [
        Doubler(),
        Doubler().method,
        functools.partial(times, 2),
        functools.partial(Doubler()),
        AsyncTransform(),
    ],
)
def test_what_is_recognised_as_async(fn):
    assert np.concatenate(everything(numbers().transform(fn), executor="inline")).tolist() == [
        2 * x for x in range(12)
    ]


def test_a_function_that_hands_on_a_coroutine_says_so_by_its_concurrency():
    doubler = Doubler()
    dataset = numbers().transform(lambda x: doubler(x), concurrency=2)
    assert np.concatenate(everything(dataset, executor="inline")).tolist() == [2 * x for x in range(12)]
    with pytest.raises(
        SampleError, match=r"returned a coroutine \(Doubler.__call__\), which is not awaited"
    ) as caught:
        everything(numbers().transform(lambda x: doubler(x)), executor="inline")
    assert isinstance(caught.value.__cause__, TypeError)
    with pytest.raises(
        SampleError, match="returned a int, which cannot be awaited: concurrency= is for async functions"
    ):
        everything(numbers().transform(lambda x: x, concurrency=2), executor="inline")


CAST = Cast("float32")


async def generator(x):
    yield x


@with_cases(
    ("make", "error", "message"),
    [
        (lambda: numbers().transform(generator), TypeError, "generator is an async generator"),
        (
            lambda: numbers().transform(times, concurrency=0),
            ValueError,
            "concurrency must be at least 1, got 0",
        ),
        (
            lambda: numbers().transform(times, concurrency=1.5),
            TypeError,
            "concurrency must be a whole number",
        ),
        (lambda: numbers().transform(CAST, concurrency=2), TypeError, "Cast runs in the loader's workers"),
        (lambda: numbers().transform(times, lazy=False), TypeError, "times is async and needs an event loop"),
        (lambda: numbers().filter(times), TypeError, r"times is an async function, which filter\(\) cannot"),
        (lambda: Compose([CAST, times]), TypeError, "times is an async function, which Compose cannot"),
        (lambda: RandomApply(times), TypeError, "which RandomApply cannot await"),
        (lambda: DataLoader(numbers(), 2, batchify_fn=times), TypeError, "got the async function times"),
        (
            lambda: numbers().transform(Doubler())[3],
            TypeError,
            r"Doubler is async.*await dataset.get\(index\)",
        ),
    ],
)
def test_what_cannot_be_awaited_is_refused(make, error, message):
    with pytest.raises(error, match=message):
        make()


@on_both_loops
async def test_one_sample_is_awaited_by_get():
    def odd(x):
        assert threading.current_thread() is not threading.main_thread()
        return x + 1

    dataset = numbers().transform(odd).transform(Doubler()).transform(odd)
    assert await dataset.get(3) == 9
    assert await dataset.take(5).sample(aioloader.samplers.IntervalSampler(5, 2)).get(1) == 7
    assert await SimpleDataset(dataset).get(0) == 3
    assert await numbers().get(4) == 4
    with pytest.raises(IndexError):
        await dataset.get(12)


# --- errors ---


class Fetch:
    """Transform that fails for some numbers."""

    def __init__(self, fail):
        self.fail = fail

    async def __call__(self, x):
        await anyio.lowlevel.checkpoint()
        if x in self.fail:
            raise self.fail[x]
        return x


@on_both_loops
async def test_an_error_comes_at_its_place_and_names_the_sample_and_the_function():
    dataset = numbers().transform(Fetch({6: LookupError("no such caption")}))
    seen = []
    text = "sample at index 6 failed in transform:Fetch: LookupError"
    async with AsyncDataLoader(dataset, 4, executor="thread", num_workers=2) as loader:
        with pytest.raises(SampleError, match=text) as caught:
            async for batch in loader:
                seen.append(batch.tolist())
    assert seen == [[0, 1, 2, 3]]
    assert type(caught.value.__cause__) is LookupError
    assert caught.value.position == 6


@with_cases("then", [None, lambda x: x + 0])
@with_cases("batchify", [None, np.array])
@with_cases(
    ("policy", "expected"),
    [
        ("skip", [[0, 2, 3], [4, 5, 7], [8, 9, 10, 11]]),
        ("replace", [[0, 2, 2, 3], [4, 5, 7, 7], [8, 9, 10, 11]]),
    ],
)
async def test_failed_samples_are_left_out_or_replaced(policy, expected, batchify, then):
    dataset = numbers().transform(Fetch({1: ValueError("a"), 6: SystemExit(3)}))
    dataset = dataset if then is None else dataset.transform(then)
    options = {"executor": "inline", "on_error": policy, "batchify_fn": batchify}
    async with AsyncDataLoader(dataset, 4, **options) as loader:
        assert [batch.tolist() for batch in await collect(loader)] == expected
        assert [(each.index, each.stage, type(each.__cause__)) for each in loader.errors] == [
            (1, "transform:Fetch", ValueError),
            (6, "transform:Fetch", SystemExit),
        ]


async def test_errors_before_and_after_what_is_awaited_keep_their_stage():
    def early(x):
        return x // (x - 1) if x == 1 else x

    def late(x):
        return x // (x - 6) if x == 6 else x

    dataset = numbers().transform(early).transform(Fetch({9: ValueError()})).transform(late)
    async with AsyncDataLoader(dataset, 4, executor="thread", on_error="skip") as loader:
        samples = np.concatenate(await collect(loader)).tolist()
        assert [(each.index, each.stage) for each in loader.errors] == [
            (1, "transform:early"),
            (6, "transform:late"),
            (9, "transform:Fetch"),
        ]
    assert samples == [0, 2, 3, 4, 5, 7, 8, 10, 11]


async def cancelled_elsewhere(x):
    """Await a cancelled task for one of the numbers."""
    if x == 5:
        task = asyncio.ensure_future(asyncio.sleep(60))
        task.cancel()
        await task
    return x


async def cancels_itself(x):
    if x == 5:
        asyncio.current_task().cancel()
    await asyncio.sleep(0)
    return x


@with_cases("fn", [cancelled_elsewhere, cancels_itself])
@with_cases("concurrency", [1, 3, 64])
async def test_a_cancellation_of_something_else_is_an_error_of_the_sample(fn, concurrency):
    dataset = numbers().transform(fn, concurrency=concurrency)
    async with AsyncDataLoader(dataset, 4, num_workers=0, on_error="skip") as loader:
        with anyio.fail_after(60):
            batches = await collect(loader)
        assert np.concatenate(batches).tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
        assert [each.index for each in loader.errors] == [5]


@on_both_loops
async def test_a_call_that_takes_too_long_is_an_error_of_the_sample(call_scopes):
    ended = []

    async def slow(x):
        try:
            if x == 3:
                call_scopes[-1].deadline = anyio.current_time()
                await anyio.sleep_forever()
        finally:
            ended.append(x)
        return x

    dataset = numbers(6).transform(slow)
    async with AsyncDataLoader(dataset, 3, num_workers=0, timeout=0.2, on_error="skip") as loader:
        assert np.concatenate(await collect(loader)).tolist() == [0, 1, 2, 4, 5]
        (error,) = loader.errors
    assert sorted(ended) == [0, 1, 2, 3, 4, 5]
    assert 0 < call_scopes.longest_s <= 0.2
    assert isinstance(error.__cause__, StalledError)
    assert "in an async transform" in str(error)


async def locked(x):
    return threading.Lock() if x == 5 else x


async def test_what_cannot_be_sent_to_a_worker_is_an_error_of_its_sample():
    dataset = numbers().transform(locked).transform(CAST)
    options = {"executor": "process", "num_workers": 1, "on_error": "skip", "batchify_fn": np.array}
    async with AsyncDataLoader(dataset, 4, **options) as loader:
        assert [len(batch) for batch in await collect(loader)] == [4, 3, 4]
        (error,) = loader.errors
    assert error.index == 5
    assert "cannot be sent to a worker process" in str(error)


def deadly(image, label):
    if label == 13:
        os.kill(os.getpid(), signal.SIGKILL)
    return image, label


@pytest.mark.slow
async def test_a_worker_that_dies_after_an_await_costs_one_sample():
    async def large(x):
        return np.full((64, 64), x, np.int32), x

    dataset = numbers(32).transform(large).transform(deadly)
    async with AsyncDataLoader(dataset, 8, executor="process", num_workers=2, on_error="skip") as loader:
        batches = await collect(loader)
        (error,) = loader.errors
    assert sum(labels(batches), []) == [x for x in range(32) if x != 13]
    assert all((image == label).all() for batch in batches for image, label in zip(*batch, strict=True))
    assert error.index == 13
    assert "SIGKILL" in str(error)
