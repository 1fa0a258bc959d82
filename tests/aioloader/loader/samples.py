"""Datasets and iteration functions that the loader's tests share."""

import asyncio
import contextlib
import time

import anyio
import numpy as np
import pytest

from aioloader import AsyncDataLoader, SimpleDataset
from tests.executors import pool

BACKENDS = ["asyncio", "trio"]
ONE_QUICK = ["asyncio", pytest.param("trio", marks=pytest.mark.slow)]


class Numbers:
    """Dataset whose item i is a small array of the number i, and i itself."""

    def __init__(self, n=100, pause_s=0.0, fail=()):
        self.n = n
        self.pause_s = pause_s
        self.fail = tuple(fail)

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        if index in self.fail:
            raise LookupError(f"no item {index}")
        if self.pause_s:
            time.sleep(self.pause_s)
        return np.full((4, 4), index, np.int32), index


def labels(batches):
    """Return the numbers of all batches, one list each."""
    return [batch[1].tolist() for batch in batches]


def numbers(n=12):
    """Yield 0, 1, ... n - 1."""
    return SimpleDataset(list(range(n)))


async def collect(loader):
    """Return the batches of an epoch."""
    return [batch async for batch in loader]


@contextlib.asynccontextmanager
async def turns_of_the_loop():
    """Yield a list that grows by one at every turn of the loop."""
    turns = []

    async def tick():
        while True:
            turns.append(None)
            await asyncio.sleep(0)

    ticking = asyncio.ensure_future(tick())
    try:
        yield turns
    finally:
        ticking.cancel()


def everything(dataset, backend="asyncio", batch_size=4, **options):
    """Return the batches of an epoch, run in a new event loop."""

    async def main():
        async with AsyncDataLoader(
            dataset, batch_size, **{**pool(options.get("executor", "process"), 2), **options}
        ) as loader:
            return await collect(loader)

    return anyio.run(main, backend=backend)


def never():
    raise LookupError("there is no such thing here")


class OneWay:
    """Object that can be pickled, but not unpickled."""

    def __reduce__(self):
        return never, ()


class Souvenirs:
    """Dataset of texts, with some objects that cannot be sent back from a worker process."""

    def __init__(self, n, bad):
        self.n = n
        self.bad = frozenset(bad)

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return f"sample {index}", OneWay() if index in self.bad else index
