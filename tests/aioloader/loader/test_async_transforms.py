"""Async transforms: awaited in the caller's loop, between what the executor does; errors, limits, cancellation."""

import asyncio
import contextvars
import functools
import os
import signal
import sys
import threading
import time

import anyio
import anyio.lowlevel
import cloudpickle
import numpy as np
import pytest

import aioloader
from aioloader import AsyncDataLoader, DataLoader, SampleError, SimpleDataset
from aioloader.errors import StalledError
from aioloader.transforms import Cast, Compose, RandomApply, Transform
from tests.aioloader.loader.samples import Numbers, labels

cloudpickle.register_pickle_by_value(sys.modules[__name__])

BACKENDS = ["asyncio", "trio"]
ONE_QUICK = ["asyncio", pytest.param("trio", marks=pytest.mark.slow)]


async def collect(loader):
    return [batch async for batch in loader]


def everything(dataset, backend="asyncio", batch_size=4, **options):
    async def main():
        async with AsyncDataLoader(dataset, batch_size, **{"num_workers": 2, **options}) as loader:
            return await collect(loader)

    return anyio.run(main, backend=backend)


def numbers(n=12):
    return SimpleDataset(list(range(n)))


def plus_ten(image, label):
    return image + 10, label


async def fetched(image, label):
    await anyio.lowlevel.checkpoint()
    return image * 2, f"caption {label}", label


def marked(image, caption, label):
    return image + 1, caption.upper(), np.float32(label), os.getpid()


# --- where a chain is cut ---


@pytest.mark.parametrize(
    ("executor", "backend"),
    [
        ("inline", "asyncio"),
        ("inline", "trio"),
        ("thread", "asyncio"),
        ("thread", "trio"),
        ("process", "asyncio"),
        pytest.param("process", "trio", marks=pytest.mark.slow),
    ],
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


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("executor", ["inline", "thread"])
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


@pytest.mark.parametrize("executor", ["inline", pytest.param("process", marks=pytest.mark.slow)])
def test_photographs_with_captions(photo_rec, executor):
    chain = aioloader.transforms.RandomResizedCrop(32)

    async def caption(label):
        await anyio.lowlevel.checkpoint()
        return f"class {int(label)}"

    async def with_caption(image, label):
        return image, await caption(label)

    plain = aioloader.ImageRecordDataset(photo_rec).transform_first(chain)
    expected = everything(plain, executor="inline", batch_size=8, shuffle=True)
    found = everything(plain.transform(with_caption), executor=executor, batch_size=8, shuffle=True)
    for (images, classes), (same, captions) in zip(expected, found, strict=True):
        assert (images == same).all()
        assert captions == [f"class {int(each)}" for each in classes]


@pytest.mark.parametrize("executor", ["inline", "thread", pytest.param("process", marks=pytest.mark.slow)])
@pytest.mark.parametrize("then", [None, plus_ten])
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


@pytest.mark.slow
def test_large_samples_go_to_workers_and_back():
    async def large(x):
        return np.full((200, 300), x, np.float64), x

    found = everything(
        numbers(9).transform(large).transform(plus_ten), executor="process", memory_limit=64 << 20
    )
    assert labels(found) == [[0, 1, 2, 3], [4, 5, 6, 7], [8]]
    assert all((image == label + 10).all() for batch in found for image, label in zip(*batch, strict=True))


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


@pytest.mark.parametrize(
    "fn",
    [
        Doubler(),
        Doubler().method,
        functools.partial(times, 2),
        functools.partial(Doubler()),
        AsyncTransform(),
    ],
    ids=["object", "bound method", "partial", "partial of an object", "transform"],
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
        SampleError, match=r"gave a coroutine \(Doubler.__call__\), which is not awaited"
    ) as caught:
        everything(numbers().transform(lambda x: doubler(x)), executor="inline")
    assert isinstance(caught.value.__cause__, TypeError)
    with pytest.raises(
        SampleError, match="gave a int, which cannot be awaited: concurrency= is for async functions"
    ):
        everything(numbers().transform(lambda x: x, concurrency=2), executor="inline")


async def generator(x):
    yield x


@pytest.mark.parametrize(
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
        (
            lambda: numbers().transform(Cast("float32"), concurrency=2),
            TypeError,
            "Cast runs in the loader's workers",
        ),
        (lambda: numbers().transform(times, lazy=False), TypeError, "times is async and needs an event loop"),
        (
            lambda: numbers().filter(times),
            TypeError,
            r"times is an async function, which filter\(\) cannot await",
        ),
        (
            lambda: Compose([Cast("float32"), times]),
            TypeError,
            "times is an async function, which Compose cannot",
        ),
        (lambda: RandomApply(times), TypeError, "which RandomApply cannot await"),
        (
            lambda: DataLoader(numbers(), 2, batchify_fn=times),
            TypeError,
            "runs in a worker, got the async function times",
        ),
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


def test_one_sample_is_awaited_by_get(run_on):
    def odd(x):
        assert threading.current_thread() is not threading.main_thread()
        return x + 1

    async def main():
        dataset = numbers().transform(odd).transform(Doubler()).transform(odd)
        assert await dataset.get(3) == 9
        assert await dataset.take(5).sample(aioloader.samplers.IntervalSampler(5, 2)).get(1) == 7
        assert await SimpleDataset(dataset).get(0) == 3
        assert await numbers().get(4) == 4
        with pytest.raises(IndexError):
            await dataset.get(12)

    run_on(main)


# --- errors ---


class Fetch:
    """Fails for some numbers."""

    def __init__(self, fail):
        self.fail = fail

    async def __call__(self, x):
        await anyio.lowlevel.checkpoint()
        if x in self.fail:
            raise self.fail[x]
        return x


@pytest.mark.parametrize("backend", BACKENDS)
def test_an_error_comes_at_its_place_and_names_the_sample_and_the_function(backend):
    dataset = numbers().transform(Fetch({6: LookupError("no such caption")}))
    seen = []

    async def main():
        async with AsyncDataLoader(dataset, 4, executor="thread", num_workers=2) as loader:
            async for batch in loader:
                seen.append(batch.tolist())

    with pytest.raises(
        SampleError, match="sample at index 6 failed in transform:Fetch: LookupError"
    ) as caught:
        anyio.run(main, backend=backend)
    assert seen == [[0, 1, 2, 3]]
    assert type(caught.value.__cause__) is LookupError
    assert caught.value.position == 6


@pytest.mark.parametrize("then", [None, lambda x: x + 0])
@pytest.mark.parametrize("batchify", [None, np.array])
@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("skip", [[0, 2, 3], [4, 5, 7], [8, 9, 10, 11]]),
        ("replace", [[0, 2, 2, 3], [4, 5, 7, 7], [8, 9, 10, 11]]),
    ],
)
def test_failed_samples_are_left_out_or_replaced(policy, expected, batchify, then):
    fail = {1: ValueError("a"), 6: SystemExit(3)}
    dataset = numbers().transform(Fetch(fail))
    dataset = dataset if then is None else dataset.transform(then)

    async def main():
        loader = AsyncDataLoader(dataset, 4, executor="inline", on_error=policy, batchify_fn=batchify)
        async with loader:
            return [batch.tolist() for batch in await collect(loader)], loader.errors

    batches, errors = anyio.run(main)
    assert batches == expected
    assert [(each.index, each.stage, type(each.__cause__)) for each in errors] == [
        (1, "transform:Fetch", ValueError),
        (6, "transform:Fetch", SystemExit),
    ]


def test_errors_before_and_after_what_is_awaited_keep_their_stage():
    def early(x):
        return x // (x - 1) if x == 1 else x

    def late(x):
        return x // (x - 6) if x == 6 else x

    dataset = numbers().transform(early).transform(Fetch({9: ValueError()})).transform(late)

    async def main():
        async with AsyncDataLoader(dataset, 4, executor="thread", on_error="skip") as loader:
            return np.concatenate(await collect(loader)).tolist(), loader.errors

    samples, errors = anyio.run(main)
    assert samples == [0, 2, 3, 4, 5, 7, 8, 10, 11]
    assert [(each.index, each.stage) for each in errors] == [
        (1, "transform:early"),
        (6, "transform:late"),
        (9, "transform:Fetch"),
    ]


async def cancelled_elsewhere(x):
    """Awaits a task that was cancelled, for one of the numbers."""
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


@pytest.mark.parametrize("fn", [cancelled_elsewhere, cancels_itself])
@pytest.mark.parametrize("concurrency", [1, 3, 64])
async def test_a_cancellation_of_something_else_is_an_error_of_the_sample(fn, concurrency):
    loader = AsyncDataLoader(
        numbers().transform(fn, concurrency=concurrency), 4, num_workers=0, on_error="skip"
    )
    async with loader:
        with anyio.fail_after(20):
            batches = await collect(loader)
        assert np.concatenate(batches).tolist() == [0, 1, 2, 3, 4, 6, 7, 8, 9, 10, 11]
        assert [each.index for each in loader.errors] == [5]


@pytest.mark.parametrize("backend", BACKENDS)
def test_a_call_that_takes_too_long_is_an_error_of_the_sample(backend):
    ended = []

    async def slow(x):
        try:
            if x == 3:
                await anyio.sleep_forever()
        finally:
            ended.append(x)
        return x

    async def main():
        loader = AsyncDataLoader(
            numbers(6).transform(slow), 3, executor="inline", timeout=0.2, on_error="skip"
        )
        async with loader:
            batches = await collect(loader)
        return np.concatenate(batches).tolist(), loader.errors

    samples, (error,) = anyio.run(main, backend=backend)
    assert samples == [0, 1, 2, 4, 5]
    assert sorted(ended) == [0, 1, 2, 3, 4, 5]
    assert isinstance(error.__cause__, StalledError)
    assert "in an async transform" in str(error)


def opaque(x):
    return threading.Lock() if x == 5 else x


async def locked(x):
    return threading.Lock() if x == 5 else x


def test_what_cannot_be_sent_to_a_worker_is_an_error_of_its_sample():
    async def main():
        dataset = numbers().transform(locked).transform(Cast("float32"))
        async with AsyncDataLoader(
            dataset, 4, executor="process", num_workers=1, on_error="skip", batchify_fn=np.array
        ) as loader:
            return [len(batch) for batch in await collect(loader)], loader.errors

    sizes, (error,) = anyio.run(main)
    assert sizes == [4, 3, 4]
    assert error.index == 5
    assert "cannot be sent to a worker process" in str(error)


class Deadly:
    """Ends its process at one number."""

    def __init__(self, at):
        self.at = at

    def __call__(self, image, label):
        if label == self.at:
            os.kill(os.getpid(), signal.SIGKILL)
        return image, label


@pytest.mark.slow
def test_a_worker_that_dies_after_an_await_costs_one_sample():
    async def large(x):
        return np.full((64, 64), x, np.int32), x

    async def main():
        dataset = numbers(32).transform(large).transform(Deadly(13))
        async with AsyncDataLoader(dataset, 8, executor="process", num_workers=2, on_error="skip") as loader:
            return await collect(loader), loader.errors

    batches, (error,) = anyio.run(main)
    assert sum(labels(batches), []) == [x for x in range(32) if x != 13]
    assert all((image == label).all() for batch in batches for image, label in zip(*batch, strict=True))
    assert error.index == 13
    assert "SIGKILL" in str(error)


# --- limits ---


class Meter:
    """Counts the calls under way; lets them go once `wanted` are. The first sample is made by itself, and passes."""

    def __init__(self, wanted):
        self.wanted = wanted
        self.inside = self.most = self.begun = 0
        self.enough = anyio.Event()

    async def __call__(self, x):
        self.begun += 1
        if x == 0:
            return x
        self.inside += 1
        self.most = max(self.most, self.inside)
        if self.inside >= self.wanted:
            self.enough.set()
        await self.enough.wait()
        await anyio.lowlevel.checkpoint()
        self.inside -= 1
        return x


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize(
    ("batch_size", "concurrency", "executor"), [(4, 6, "thread"), (32, 5, "inline"), (1, 3, "inline")]
)
def test_as_many_calls_as_allowed_run_side_by_side_and_no_more(backend, batch_size, concurrency, executor):
    async def main():
        meter = Meter(concurrency)
        dataset = numbers(64).transform(meter, concurrency=concurrency)
        async with AsyncDataLoader(dataset, batch_size, executor=executor) as loader:
            with anyio.fail_after(30):
                batches = await collect(loader)
        return np.concatenate(batches).tolist(), meter.most

    samples, most = anyio.run(main, backend=backend)
    assert samples == list(range(64))
    assert most == concurrency


async def test_nothing_runs_further_ahead_than_prefetch():
    meter = Meter(1)
    dataset = numbers(400).transform(meter)
    async with AsyncDataLoader(dataset, 5, executor="inline", prefetch=3) as loader:
        delivered = 0
        async for _ in loader:
            delivered += 1
            await anyio.wait_all_tasks_blocked()
            assert meter.begun <= 5 * (delivered + 3)
            assert len(asyncio.all_tasks()) <= 3 * 5 + 10
            if delivered == 3:
                break


async def test_calls_that_never_wait_leave_the_loop_free():
    async def busy(x):
        time.sleep(0.002)
        return x

    turns = 0

    async def tick():
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    ticking = asyncio.ensure_future(tick())
    async with AsyncDataLoader(numbers(40).transform(busy, concurrency=1), 40, num_workers=0) as loader:
        await collect(loader)
    ticking.cancel()
    assert turns > 30


async def test_two_passes_share_one_limit():
    meter = Meter(4)
    dataset = numbers(40).transform(meter, concurrency=4)
    async with AsyncDataLoader(dataset, 4, num_workers=0) as loader:
        first, second = await asyncio.gather(collect(loader), collect(loader))
    assert np.concatenate(first).tolist() == np.concatenate(second).tolist() == list(range(40))
    assert meter.most == 4


# --- the caller's loop, task and context ---

user = contextvars.ContextVar("user")


@pytest.mark.parametrize("backend", BACKENDS)
def test_the_callers_loop_and_context_variables_are_seen(backend):
    seen = set()

    async def look(x):
        await anyio.lowlevel.checkpoint()
        seen.add((user.get(), threading.current_thread(), anyio.lowlevel.current_token().native_token))
        return x

    async def main():
        user.set("ann")
        async with AsyncDataLoader(numbers().transform(look), 4, executor="thread") as loader:
            await collect(loader)
        assert seen == {("ann", threading.current_thread(), anyio.lowlevel.current_token().native_token)}

    anyio.run(main, backend=backend)


@pytest.mark.parametrize("outer", [None, "asyncio", "trio"])
@pytest.mark.parametrize("executor", ["inline", "thread"])
def test_the_blocking_loader_awaits_in_its_own_thread_with_the_callers_variables(executor, outer):
    seen = set()

    async def look(x):
        await anyio.lowlevel.checkpoint()
        seen.add((user.get(None), threading.current_thread().name))
        return 2 * x

    def main():
        with DataLoader(numbers().transform(look), 4, executor=executor) as loader:
            user.set("bob")
            assert [batch.tolist() for batch in loader] == [[0, 2, 4, 6], [8, 10, 12, 14], [16, 18, 20, 22]]
            user.set("eve")
            assert len(list(loader)) == 3

    async def inside():
        main()

    if outer is None:
        contextvars.copy_context().run(main)
    else:
        anyio.run(inside, backend=outer)
    assert seen == {("bob", "aioloader-portal"), ("eve", "aioloader-portal")}


# --- determinism ---


async def drawn(x, *, rng):
    await anyio.lowlevel.checkpoint()
    return x, rng.random()


def drawn_after(x, first, *, rng):
    return x, first, rng.random()


def drawn_before(x, *, rng):
    return x, rng.random()


def test_draws_depend_on_nothing_but_the_sample():
    dataset = numbers(24).transform(drawn).transform(drawn_after)
    options = [
        {"executor": "inline", "batch_size": 5},
        {"executor": "thread", "batch_size": 24, "backend": "trio"},
        {"executor": "process", "batch_size": 7},
    ]
    tables = []
    for each in options:
        batches = everything(dataset, shuffle=True, seed=5, **each)
        tables.append(np.concatenate([np.stack(batch, 1) for batch in batches]))
    assert (tables[0] == tables[1]).all()
    assert (tables[0] == tables[2]).all()
    assert len({*tables[0][:, 1], *tables[0][:, 2]}) == 48


def test_draws_before_an_await_are_those_of_a_chain_without_it():
    async def same(x, draw):
        return x, draw

    plain = everything(numbers().transform(drawn_before), executor="inline")
    awaited = everything(numbers().transform(drawn_before).transform(same), executor="inline")
    assert [draws.tolist() for _, draws in plain] == [draws.tolist() for _, draws in awaited]


def test_resume_goes_on_where_it_was_left(run_on):
    async def main():
        async def read(state, most):
            async with AsyncDataLoader(
                numbers(30).transform(drawn), 4, executor="inline", shuffle=True
            ) as loader:
                if state is not None:
                    loader.load_state_dict(state)
                seen = []
                async for numbers_, draws in loader:
                    seen += zip(numbers_.tolist(), draws.tolist(), strict=True)
                    if len(seen) >= most:
                        break
                return seen, loader.state_dict()

        whole, _ = await read(None, 99)
        first, state = await read(None, 12)
        rest, _ = await read(state, 99)
        assert first + rest == whole

    run_on(main)


# --- leaving ---


class Endless:
    """Waits for ever from some number on; tells which calls were called off."""

    def __init__(self, begin):
        self.begin = begin
        self.waiting = set()
        self.called_off = set()

    async def __call__(self, x):
        if x >= self.begin:
            self.waiting.add(x)
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                self.called_off.add(x)
                raise
        return x


async def gone(endless):
    """Until all calls have been called off."""
    with anyio.fail_after(5):
        while endless.waiting != endless.called_off:
            await anyio.sleep(0.001)


@pytest.mark.parametrize("backend", ONE_QUICK)
@pytest.mark.parametrize("way", ["break", "aclose", "cancel", "timeout", "error"])
def test_leaving_calls_everything_off(way, backend, leftovers):
    async def main():
        endless = Endless(4)
        loader = AsyncDataLoader(numbers(40).transform(endless), 4, executor="thread", num_workers=1)
        async with loader:
            if way == "break":
                async for batch in loader:
                    assert batch.tolist() == [0, 1, 2, 3]
                    await anyio.wait_all_tasks_blocked()
                    break
            elif way == "error":
                with pytest.raises(KeyError):
                    async for _ in loader:
                        raise KeyError
            elif way == "aclose":
                batches = aiter(loader)
                await anext(batches)
                await loader.aclose()
                with pytest.raises(aioloader.LoaderClosedError):
                    await anext(batches)
            else:
                with anyio.move_on_after(0.2 if way == "timeout" else 60) as scope:
                    async with anyio.create_task_group() as tasks:
                        if way == "cancel":
                            tasks.start_soon(cancel_once_waiting, endless, scope)
                        await collect(loader)
                assert scope.cancelled_caught
            await gone(endless)
        assert min(endless.called_off, default=4) >= 4

    async def cancel_once_waiting(endless, scope):
        while not endless.waiting:
            await anyio.sleep(0.001)
        scope.cancel()

    anyio.run(main, backend=backend)


async def test_asyncios_own_cancellation_and_timeout_reach_the_calls():
    endless = Endless(4)
    async with AsyncDataLoader(numbers(40).transform(endless), 4, num_workers=0) as loader:
        task = asyncio.ensure_future(collect(loader))
        while not endless.waiting:
            await asyncio.sleep(0.001)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        del task
        await gone(endless)
        with pytest.raises(TimeoutError):
            async with asyncio.timeout(0.1):
                async for _ in loader:
                    pass
        await gone(endless)


async def test_a_timeout_around_anext_loses_nothing():
    release = asyncio.Event()

    async def gated(x):
        if x >= 4:
            await release.wait()
        return x

    async with AsyncDataLoader(numbers(12).transform(gated), 4, num_workers=0) as loader:
        batches = aiter(loader)
        assert (await anext(batches)).tolist() == [0, 1, 2, 3]
        for _ in range(3):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await anext(batches)
        release.set()
        assert [batch.tolist() async for batch in batches] == [[4, 5, 6, 7], [8, 9, 10, 11]]


@pytest.mark.parametrize("backend", BACKENDS)
def test_calls_that_swallow_their_cancellation_do_not_go_on_for_ever(backend):
    begun = []
    left = False

    async def stubborn(x):
        begun.append(x)
        try:
            await anyio.sleep(60 if left else 0)
        except BaseException:
            return -1  # what should never be done
        return x

    async def main():
        nonlocal left
        dataset = numbers(400).transform(stubborn, concurrency=2)
        async with AsyncDataLoader(dataset, 4, executor="inline", prefetch=20) as loader:
            async for _ in loader:
                left = True
                before = len(begun)
                await anyio.wait_all_tasks_blocked()
                break
            with anyio.fail_after(5):
                await loader.aclose()
        assert len(begun) <= before + 4 + 2

    anyio.run(main, backend=backend)


def test_a_loop_that_ends_in_the_middle_leaves_nothing(leftovers):
    endless = Endless(4)

    async def main():
        async for _ in AsyncDataLoader(numbers(40).transform(endless), 4, executor="thread", num_workers=1):
            return

    asyncio.run(main())
    assert endless.waiting == endless.called_off


@pytest.mark.parametrize("executor", ["inline", "thread"])
def test_leaving_the_blocking_loader_calls_everything_off(executor, leftovers):
    endless = Endless(4)
    with DataLoader(numbers(40).transform(endless), 4, executor=executor, num_workers=1) as loader:
        for _ in loader:
            break
    assert endless.waiting == endless.called_off


# --- several loaders ---


@pytest.mark.parametrize("backend", BACKENDS)
def test_several_loaders_in_one_loop(backend):
    async def main():
        async def triple(x):
            await anyio.lowlevel.checkpoint()
            return 3 * x

        plain = AsyncDataLoader(numbers(20), 3, executor="thread", num_workers=1)
        awaited = AsyncDataLoader(numbers(20).transform(triple), 3, executor="inline")
        in_memory = AsyncDataLoader(np.arange(20), 3)
        async with plain, awaited, in_memory:
            sums = []
            others = aiter(awaited)
            third = aiter(in_memory)
            async for batch in plain:  # one in step with the other
                assert (3 * batch == await anext(others)).all()
                assert (batch == await anext(third)).all()
                sums.append(int(batch.sum()))
            assert sum(sums) == 190
            with pytest.raises(StopAsyncIteration):
                await anext(others)
            found = {}

            async def run(name, loader):
                found[name] = np.concatenate(await collect(loader)).tolist()

            async with anyio.create_task_group() as tasks:  # and each by itself
                for name, loader in (("plain", plain), ("awaited", awaited), ("in memory", in_memory)):
                    tasks.start_soon(run, name, loader)
        assert found["plain"] == found["in memory"] == list(range(20))
        assert found["awaited"] == list(range(0, 60, 3))

    anyio.run(main, backend=backend)


# --- what is told ---


async def test_seconds_waited_are_told_by_name_and_are_no_work_of_the_workers():
    async def caption(x):
        await asyncio.sleep(0.01)
        return x

    async with AsyncDataLoader(numbers(12).transform(caption), 4, num_workers=0) as loader:
        await collect(loader)
        stats, told = loader.stats(), loader.explain()
    assert set(stats.awaited) == {"caption"}
    assert stats.awaited["caption"] >= 0.12
    assert stats.transform_s < 0.1
    assert not stats.transforms
    assert told.startswith("The transform caption is the limit. It is awaited")


async def test_a_stall_names_the_async_transform_and_where_it_waits(caplog):
    release = asyncio.Event()

    async def captions(x):
        if x == 5:
            await release.wait()
        return x

    async def let_go():
        while not caplog.records:
            await asyncio.sleep(0.01)
        release.set()

    loader = AsyncDataLoader(numbers(8).transform(captions), 4, num_workers=0, stall_timeout=0.2)
    async with loader:
        letting = asyncio.ensure_future(let_go())
        assert np.concatenate(await collect(loader)).tolist() == list(range(8))
        await letting
    text = caplog.records[0].getMessage()
    assert "async transform captions: at the sample with index 5, batch 1" in text
    assert "in captions" in text
