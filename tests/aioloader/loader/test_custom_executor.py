"""Tests of an executor that fails: its error reaches the caller unchanged, after the earlier batches."""

from contextlib import asynccontextmanager

import anyio
import pytest

from aioloader import AsyncDataLoader, DataLoader, Dataset
from aioloader.executors import ThreadExecutor
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
