"""Tests of an executor that fails: its error reaches the caller unchanged, after the earlier batches."""

from contextlib import asynccontextmanager

import anyio
import pytest

from aioloader import AsyncDataLoader, DataLoader
from aioloader.executors import ThreadExecutor
from tests.aioloader.loader.samples import Numbers, labels


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


@pytest.mark.parametrize("when", ["enter", "during", "exit"])
def test_a_failing_service_is_the_error_of_an_async_loop(when, run_on):
    async def main():
        got = []
        async with AsyncDataLoader(Numbers(40), 4, executor=Broken(when)) as loader:
            with pytest.raises(ConnectionError, match="the cluster is gone"):
                async for batch in loader:
                    got.append(batch)
        return labels(got)

    got = run_on(main)
    expected = [list(range(start, start + 4)) for start in range(0, 40, 4)]
    assert got == expected[: len(got)]
    assert len(got) <= {"enter": 0, "during": 3, "exit": 10}[when]
    assert len(got) == 10 or when != "exit"


@pytest.mark.parametrize("when", ["enter", "during", "exit"])
def test_a_failing_service_is_the_error_of_a_blocking_loop(when):
    got = []
    with DataLoader(Numbers(40), 4, executor=Broken(when)) as loader:
        with pytest.raises(ConnectionError, match="the cluster is gone"):
            for batch in loader:
                got.append(batch)
    assert len(got) <= {"enter": 0, "during": 3, "exit": 10}[when]
    assert len(got) == 10 or when != "exit"


def test_the_next_epoch_of_a_loader_whose_executor_recovers():
    executor = Broken("during")
    with DataLoader(Numbers(40), 4, executor=executor) as loader:
        with pytest.raises(ConnectionError):
            list(loader)
        executor.when = "never"
        assert len(list(loader)) == 10
