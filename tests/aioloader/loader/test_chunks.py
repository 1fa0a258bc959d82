"""Tests of how a loader cuts batches into chunks, seen from an executor."""

import time
from collections import Counter

from aioloader import DataLoader, Dataset
from aioloader.executors import ThreadExecutor

WORKERS = 8


class Slow(Dataset):
    """Numbers that take 2 ms each."""

    def __init__(self, length):
        self.length = length

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        time.sleep(0.002)
        return index


class Counting(ThreadExecutor):
    """Thread executor that counts the chunks of each batch."""

    def __init__(self):
        super().__init__(WORKERS)
        self.chunks = Counter()

    async def run(self, chunks):
        self.chunks[chunks[0].batch] += sum(len(chunk) > 1 for chunk in chunks)
        return await super().run(chunks)


def test_a_batch_among_many_has_fewer_chunks_than_the_first_and_the_last_one():
    executor = Counting()
    with DataLoader(Slow(32 * 40), 32, executor=executor) as loader:
        assert sum(map(len, loader)) == 32 * 40
        first_epoch, executor.chunks = executor.chunks, Counter()
        assert sum(map(len, loader)) == 32 * 40
    for chunks in (first_epoch, executor.chunks):
        assert chunks[0] == chunks[39] == WORKERS
        assert sum(chunks[number] for number in range(16, 24)) <= 8 * WORKERS / 2


def test_a_batch_that_is_prefetched_alone_has_a_chunk_for_every_worker():
    executor = Counting()
    with DataLoader(Slow(32 * 5), 32, executor=executor, prefetch=1) as loader:
        assert sum(map(len, loader)) == 32 * 5
    assert [executor.chunks[number] for number in range(1, 5)] == [WORKERS] * 4
