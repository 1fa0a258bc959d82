"""Tests of how a loader cuts batches into chunks, seen from an executor."""

from collections import Counter

import anyio

from aioloader import AsyncDataLoader
from aioloader.executors import ThreadExecutor
from tests.aioloader.loader.samples import Numbers

WORKERS = 8
IN_FLIGHT = 2 * WORKERS


class Counting(ThreadExecutor):
    """Thread executor that counts the chunks of each batch, and reports 3 ms for each sample.

    Args:
        at_once: batches that must be there before the first one runs.
    """

    def __init__(self, at_once):
        super().__init__(WORKERS)
        self.chunks = Counter()
        self.at_once = at_once
        self.begun = anyio.Event()

    async def run(self, chunks):
        if chunks[0].layout is not None:  # else a single sample, which shows the layout
            self.chunks[chunks[0].batch] = len(chunks)
            if len(self.chunks) == self.at_once:
                self.begun.set()
            await self.begun.wait()
        result = await super().run(chunks)
        result.decode_s = result.cpu_s = 0.003 * len(result.written)
        return result


async def test_a_batch_among_many_is_one_chunk_and_the_first_and_the_last_one_are_shared():
    executor = Counting(at_once=IN_FLIGHT)
    async with AsyncDataLoader(Numbers(16 * 40), 16, executor=executor) as loader:
        assert sum([len(numbers) async for _, numbers in loader]) == 16 * 40
    assert executor.chunks[0] == executor.chunks[39] == WORKERS
    assert executor.chunks[IN_FLIGHT // 2] == 2
    assert executor.chunks[IN_FLIGHT - 1] == 1


async def test_a_batch_that_is_in_flight_alone_has_a_chunk_for_every_worker():
    executor = Counting(at_once=1)
    async with AsyncDataLoader(Numbers(16 * 5), 16, executor=executor, prefetch=1) as loader:
        assert sum([len(numbers) async for _, numbers in loader]) == 16 * 5
    assert [executor.chunks[number] for number in range(5)] == [WORKERS] * 5
