"""Tests of leaving an epoch: async transforms and sources are cancelled, and have time to clean up."""

import asyncio
import contextlib

import anyio
import anyio.lowlevel
import pytest

import aioloader
from aioloader import AsyncDataLoader, DataLoader, IterableDataset
from tests.aioloader.loader.samples import collect, numbers, turns_of_the_loop
from tests.cases import on_both_loops, with_cases
from tests.executors import pool

LIMIT_S = 30  # half as long as what is left waits, or it waits for ever

# --- transforms ---


class Endless:
    """Transform that waits forever from some number on; records the cancelled calls."""

    def __init__(self, begin):
        self.begin = begin
        self.waiting = set()
        self.cancelled = set()

    async def __call__(self, x):
        if x >= self.begin:
            self.waiting.add(x)
            try:
                await anyio.sleep_forever()
            except anyio.get_cancelled_exc_class():
                self.cancelled.add(x)
                raise
        return x


async def gone(endless):
    """Wait until all calls have been cancelled."""
    with anyio.fail_after(LIMIT_S):
        while endless.waiting != endless.cancelled:
            await anyio.sleep(0.001)


async def leave(way, loader):
    """Leave an epoch after its first batch, once all that follows has begun; "task" is asyncio's own cancellation."""
    scope, begun = anyio.CancelScope(), anyio.Event()

    async def loop():
        async for _ in loader:
            await anyio.wait_all_tasks_blocked()
            begun.set()
            if way == "break":
                break
            if way == "error":
                raise KeyError
            if way == "cancel":
                scope.cancel()
            if way == "timeout":
                scope.deadline = anyio.current_time() + 0.02

    if way == "aclose":
        batches = aiter(loader)
        await anext(batches)
        await anyio.wait_all_tasks_blocked()
        await loader.aclose()
        with pytest.raises(aioloader.LoaderClosedError):
            while True:
                await anext(batches)
    elif way == "task":
        task = asyncio.ensure_future(loop())
        await begun.wait()
        await anyio.wait_all_tasks_blocked()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
    else:
        with contextlib.suppress(KeyError), scope:
            await loop()
        assert scope.cancelled_caught == (way in ("cancel", "timeout"))


@with_cases("way", ["break", "aclose", "cancel", "timeout", "error"])
@on_both_loops
async def test_leaving_calls_everything_off(way, leftovers):
    endless = Endless(4)
    dataset = numbers(40).transform(endless)
    async with AsyncDataLoader(dataset, 4, executor="thread", num_workers=1) as loader:
        await leave(way, loader)
        await gone(endless)
    assert min(endless.cancelled, default=4) >= 4


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


@on_both_loops
async def test_calls_that_swallow_their_cancellation_do_not_go_on_for_ever():
    begun = []
    left = False

    async def stubborn(x):
        begun.append(x)
        try:
            await anyio.sleep(60 if left else 0)
        except BaseException:
            return -1  # bad practice
        return x

    dataset = numbers(400).transform(stubborn, concurrency=2)
    async with AsyncDataLoader(dataset, 4, executor="inline", prefetch=20) as loader:
        async for _ in loader:
            left = True
            before = len(begun)
            await anyio.wait_all_tasks_blocked()
            break
        with anyio.fail_after(LIMIT_S):
            await loader.aclose()
    assert len(begun) <= before + 4 + 2


def test_a_loop_that_ends_in_the_middle_leaves_nothing(leftovers):
    endless = Endless(4)

    async def main():
        async for _ in AsyncDataLoader(numbers(40).transform(endless), 4, executor="thread", num_workers=1):
            return

    asyncio.run(main())
    assert endless.waiting == endless.cancelled


@with_cases("executor", ["inline", "thread"])
def test_leaving_the_blocking_loader_calls_everything_off(executor, leftovers):
    endless = Endless(4)
    with DataLoader(numbers(40).transform(endless), 4, **pool(executor, 1)) as loader:
        for _ in loader:
            break
    assert endless.waiting == endless.cancelled


# --- cleaning up ---


class Guests:
    """Counter of connections, and of those that were closed by awaiting, as they should be."""

    def __init__(self):
        self.come = self.gone = 0

    async def __aenter__(self):
        self.come += 1

    async def __aexit__(self, *error):
        for _ in range(3):
            await asyncio.sleep(0.001)
        self.gone += 1


@with_cases("way", ["break", "aclose", "timeout", "cancel", "task"])
@with_cases("what", ["transform", "source"])
async def test_what_is_cancelled_may_await_in_its_finally(what, way):
    guests = Guests()

    async def visit(x):
        async with guests:
            await asyncio.sleep(0 if x < 4 else 60)
        return x

    async def source():
        async with guests:
            for number in range(100):
                await asyncio.sleep(0 if number < 6 else 60)
                yield number

    dataset = numbers(40).transform(visit) if what == "transform" else IterableDataset(source)
    async with AsyncDataLoader(dataset, 4, num_workers=0) as loader:
        await leave(way, loader)
    with anyio.fail_after(LIMIT_S):
        while guests.gone < guests.come:
            await asyncio.sleep(0.001)
    assert guests.come > (4 if what == "transform" else 0)


async def test_a_call_whose_time_is_over_may_await_in_its_finally(call_scopes):
    guests = Guests()

    async def visit(x):
        if x == 2:
            call_scopes[-1].deadline = anyio.current_time()
        async with guests:
            await asyncio.sleep(60 if x == 2 else 0)
        return x

    dataset = numbers(4).transform(visit)
    async with AsyncDataLoader(dataset, 4, num_workers=0, timeout=0.4, on_error="skip") as loader:
        assert [batch.tolist() for batch in await collect(loader)] == [[0, 1, 3]]
    assert guests.gone == guests.come == 4


async def test_a_loop_within_a_call_that_is_cancelled_is_cancelled_once():
    """asyncio's groups and timeouts inside a cancelled call work, too."""
    ends = []

    async def part(number):
        try:
            await asyncio.sleep(60)
        finally:
            await asyncio.sleep(0.001)
            ends.append(number)

    async def both(x):
        if x >= 4:
            async with asyncio.timeout(60), asyncio.TaskGroup() as group:
                group.create_task(part(x))
                group.create_task(part(-x))
        return x

    async with AsyncDataLoader(numbers(8).transform(both), 4, num_workers=0) as loader:
        await leave("break", loader)
    assert sorted(ends) == [-7, -6, -5, -4, 4, 5, 6, 7]


@with_cases("what", ["transform", "source"])
async def test_who_never_ends_is_not_waited_for(what, caplog):
    begun = []
    let_go = asyncio.Event()

    async def stubborn(x=0):
        begun.append(x)
        while not let_go.is_set():
            try:
                await asyncio.sleep(60)
            except asyncio.CancelledError:
                pass
        return x

    async def source():
        yield 0
        yield await stubborn()

    async def first_quickly(x):
        return x if x < 1 else await stubborn(x)

    dataset = numbers(4).transform(first_quickly) if what == "transform" else IterableDataset(source)
    loader = AsyncDataLoader(dataset, 1, num_workers=0)
    async with loader:
        async for _ in loader:
            while not begun:
                await asyncio.sleep(0.001)
            break
        with anyio.fail_after(LIMIT_S):
            await loader.aclose()
    let_go.set()
    with anyio.fail_after(LIMIT_S):  # from now on cancelled again at every await
        while len(asyncio.all_tasks()) > 1:
            await asyncio.sleep(0.001)


@on_both_loops
async def test_a_source_may_keep_scopes_of_its_own_open_between_samples():
    closed = []

    async def source():
        send, receive = anyio.create_memory_object_stream(2)

        async def produce():
            async with send:
                for number in range(50):
                    await send.send(number)

        async with receive, anyio.create_task_group() as tasks:
            tasks.start_soon(produce)
            with anyio.move_on_after(60):
                async for number in receive:
                    yield number
        closed.append(True)

    async with AsyncDataLoader(IterableDataset(source), 7, num_workers=0) as loader:
        for _ in range(2):
            assert [x for batch in await collect(loader) for x in batch.tolist()] == list(range(50))
    assert closed == [True, True]


# --- sources ---


@with_cases("way", ["break", "aclose", "cancel"])
@with_cases("waits", [False, True])
@on_both_loops
async def test_the_source_is_closed_when_a_pass_is_left(way, waits, leftovers):
    closed = []

    async def source():
        try:
            for number in range(1000):
                if waits and number >= 4:
                    await anyio.sleep_forever()
                yield number
        finally:
            with anyio.CancelScope(shield=True):
                await anyio.sleep(0.001)  # there is time to clean up
                closed.append(True)

    async with AsyncDataLoader(IterableDataset(source), 4, num_workers=0, prefetch=2) as loader:
        await leave(way, loader)
        with anyio.fail_after(LIMIT_S):
            while not closed:
                await anyio.sleep(0.001)
    assert closed == [True]


async def test_a_failure_while_closing_is_reported_to_the_log(caplog):
    async def source():
        try:
            while True:
                yield 1
        finally:
            raise OSError("cannot say goodbye")

    async with AsyncDataLoader(IterableDataset(source), 2, num_workers=0) as loader:
        async for _ in loader:
            break
    assert "the source of IterableDataset failed while it was closed" in caplog.text
    assert "cannot say goodbye" in caplog.text


async def test_a_timeout_around_anext_loses_nothing_of_a_source():
    queue = asyncio.Queue()

    async def source():
        while (item := await queue.get()) is not None:
            yield item

    async with AsyncDataLoader(IterableDataset(source), 2, num_workers=0) as loader:
        batches = aiter(loader)
        queue.put_nowait(1)
        for _ in range(2):
            with pytest.raises(TimeoutError):
                async with asyncio.timeout(0.02):
                    await anext(batches)
        queue.put_nowait(2)
        assert (await anext(batches)).tolist() == [1, 2]
        queue.put_nowait(3)
        queue.put_nowait(None)
        assert (await anext(batches)).tolist() == [3]
        with pytest.raises(StopAsyncIteration):
            await anext(batches)


async def test_a_source_that_never_waits_leaves_the_loop_free():
    async def source():
        for number in range(20_000):
            yield number

    async with turns_of_the_loop() as turns:
        async with AsyncDataLoader(IterableDataset(source), 20_000, num_workers=0, batchify_fn=len) as loader:
            assert await collect(loader) == [20_000]
    assert len(turns) > 2
