"""Tests of executors of a caller: their errors reach it unchanged, and those that need no tasks get none."""

import asyncio
import gc
import selectors
from contextlib import asynccontextmanager

import anyio
import pytest

from aioloader import AsyncDataLoader, DataLoader, Dataset
from aioloader.executors import ThreadExecutor
from aioloader.executors.inline import InlineExecutor
from aioloader.foundation.concurrency import loop_notifier
from tests.aioloader.loader.samples import Numbers, labels
from tests.cases import on_both_loops, with_cases

EXPECTED = [list(range(start, start + 4)) for start in range(0, 40, 4)]


class Broken(ThreadExecutor):
    """Thread executor whose service fails: at its start, after `batches` batches, or at its end."""

    def __init__(self, when, batches=3):
        super().__init__(2)
        self.when = when
        self.batches = batches
        self.failing = None

    @asynccontextmanager
    async def serving(self):
        if self.when == "enter":
            raise ConnectionError("the cluster is gone")
        self.failing = anyio.Event()
        async with super().serving(), anyio.create_task_group() as tasks:
            tasks.start_soon(self._fail)
            yield
            tasks.cancel_scope.cancel()
        if self.when == "exit":
            raise ConnectionError("the cluster is gone")

    async def _fail(self):
        await self.failing.wait()
        raise ConnectionError("the cluster is gone")

    async def run(self, chunks):
        if self.when == "during" and chunks[0].batch >= self.batches:
            self.failing.set()
            await anyio.sleep_forever()
        return await super().run(chunks)


@with_cases("when", ["enter", "during", "exit"])
@on_both_loops
async def test_a_failing_service_is_the_error_of_an_async_loop(when):
    got = []
    async with AsyncDataLoader(Numbers(40), 4, executor=Broken(when)) as loader:
        with pytest.raises(ConnectionError, match="the cluster is gone"):
            async for batch in loader:
                got.append(batch)
    assert labels(got) == EXPECTED[: len(got)]
    assert len(got) <= {"enter": 0, "during": 3, "exit": 10}[when]
    assert len(got) == 10 or when != "exit"


def test_the_next_epoch_of_a_loader_whose_executor_recovers():
    executor = Broken("during")
    with DataLoader(Numbers(40), 4, executor=executor) as loader:
        with pytest.raises(ConnectionError):
            list(loader)
        executor.when = "never"
        assert len(list(loader)) == 10


class WithTransforms(Numbers, Dataset):
    """Numbers with the methods of a dataset."""


class Minimal:
    """An executor with the required members of `aioloader.abc.Executor` only."""

    def __init__(self):
        self._inner = ThreadExecutor(2)

    @property
    def workers(self):
        return self._inner.workers

    def open(self, program, memory):
        self._inner.open(program, memory)

    def serving(self):
        return self._inner.serving()

    async def run(self, chunks):
        return await self._inner.run(chunks)

    def close(self):
        self._inner.close()


@with_cases("waits", [False, True])
def test_an_executor_needs_the_required_members_only(waits):
    async def same(*parts):
        await anyio.sleep(0)
        return parts

    dataset = WithTransforms(40).transform(same, concurrency=4) if waits else Numbers(40)
    with DataLoader(dataset, 4, executor=Minimal(), stall_timeout=0.05) as loader:
        assert labels(list(loader)) == EXPECTED
        stats = loader.stats()
    assert (stats.workers, stats.restarts, stats.tuning) == (2, 0, "")
    assert waits or stats.executor == "Minimal"


class Counting(Minimal):
    """An executor with some of the other members of `aioloader.abc.Executor`, too."""

    kind = "cluster"
    restarts = 3
    tuning = "Two were enough."
    most = 7

    async def workers_now(self):
        return []


def test_an_executor_tells_what_it_can():
    with DataLoader(Numbers(40), 4, executor=Counting()) as loader:
        assert labels(list(loader)) == EXPECTED
        stats = loader.stats()
    assert (stats.executor, stats.restarts, stats.tuning) == ("cluster", 3, "Two were enough.")
    assert stats.prefetch == 14


class Direct(InlineExecutor):
    """Executor without tasks, whose answers come at the loop's next turn, or at once.

    Args:
        at_once: `start` calls `done` itself.
        refused: number of a batch that cannot be begun.
        answered: batches that are answered.
    """

    def __init__(self, *, at_once=False, refused=None, answered=10):
        self.at_once = at_once
        self.refused = refused
        self.answered = answered
        self.begun = []
        self.cancelled = []

    def start(self, chunks, done):
        batch = chunks[0].batch
        if batch == self.refused:
            raise ConnectionError("the cluster is gone")
        self.begun.append(batch)
        if batch >= self.answered:

            def cancel():
                self.cancelled.append(batch)
                for chunk in chunks:
                    chunk.release()

            return cancel
        if self.at_once:
            done(self.run_blocking(chunks))
        else:
            loop_notifier()(lambda: done(self.run_blocking(chunks)))
        return lambda: None


@with_cases("at_once", [False, True])
@on_both_loops
async def test_an_executor_that_begins_chunks_needs_no_task(at_once):
    executor = Direct(at_once=at_once)
    async with AsyncDataLoader(Numbers(40), 4, executor=executor) as loader:
        for epoch in range(2):
            assert labels([batch async for batch in loader]) == EXPECTED
            assert executor.begun == list(range(10)) * (epoch + 1)


class Overriding(Direct):
    """Executor that counts the batches in a `run` of its own."""

    async def run(self, chunks):
        self.cancelled.append(chunks[0].batch)
        return await super().run(chunks)


@on_both_loops
async def test_a_run_that_a_subclass_overrides_is_called_for_every_batch():
    executor = Overriding()
    async with AsyncDataLoader(Numbers(40), 4, executor=executor) as loader:
        assert labels([batch async for batch in loader]) == EXPECTED
    assert executor.begun == []
    assert set(executor.cancelled) == set(range(10))


@on_both_loops
async def test_chunks_that_cannot_be_begun_fail_their_batch_only():
    async with AsyncDataLoader(Numbers(40), 4, executor=Direct(refused=3)) as loader:
        batches = aiter(loader)
        batches.continue_after_errors()
        got = [await anext(batches) for _ in range(3)]
        with pytest.raises(ConnectionError, match="the cluster is gone") as caught:
            await anext(batches)
        assert caught.value.__notes__ == ["in batch 3 of this epoch"]
        got += [batch async for batch in batches]
    assert labels(got) == EXPECTED[:3] + EXPECTED[4:]


@with_cases("leave", ["break", "cancel"])
@on_both_loops
async def test_batches_that_have_begun_are_cancelled_with_their_epoch(leave):
    executor = Direct(answered=2)
    async with AsyncDataLoader(Numbers(40), 4, executor=executor, prefetch=3) as loader:
        batches = aiter(loader)
        got = [await anext(batches) for _ in range(2)]
        if leave == "cancel":
            with anyio.move_on_after(0.01):
                await anext(batches)
        del batches
        gc.collect()
        while not executor.cancelled:
            await anyio.sleep(0.001)
        assert executor.cancelled == [2, 3, 4]
        del got
        executor.answered = 10
        assert labels([batch async for batch in loader]) == EXPECTED
        assert loader.stats().memory_bytes == 0


def test_a_batch_takes_three_turns_of_the_loop():
    """Its answer, the caller who takes it, and the beginning of the next one; without a task for it."""
    turns = 0

    class Counted(selectors.DefaultSelector):
        def select(self, timeout=None):
            nonlocal turns
            turns += 1
            return super().select(timeout)

    async def count():
        executor = Direct(answered=300)
        async with AsyncDataLoader(Numbers(1200), 4, executor=executor, prefetch=1) as loader:
            batches = aiter(loader)
            for _ in range(10):
                await anext(batches)
            before = turns, asyncio.all_tasks()
            for _ in range(200):
                await anext(batches)
            assert asyncio.all_tasks() == before[1]
            return turns - before[0]

    with asyncio.Runner(loop_factory=lambda: asyncio.SelectorEventLoop(Counted())) as runner:
        assert runner.run(count()) < 4 * 200


@on_both_loops
async def test_batches_begin_while_a_caller_takes_ready_ones_without_a_wait():
    executor = Direct()
    async with AsyncDataLoader(Numbers(40), 4, executor=executor, prefetch=4) as loader:
        batches = aiter(loader)
        await anext(batches)
        while len(executor.begun) < 5:
            await anyio.sleep(0.001)
        await anyio.wait_all_tasks_blocked()
        assert executor.begun == [0, 1, 2, 3, 4]
        for _ in range(3):
            await anext(batches)
        # Those of the last two may still begin: trio chooses which of two tasks runs first.
        assert executor.begun[5:] in ([5], [5, 6])
