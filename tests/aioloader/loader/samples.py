"""Datasets, and ways to iterate them, that the loader's tests share."""

import asyncio
import contextlib
import time

import anyio
import numpy as np
import pytest

from aioloader import AsyncDataLoader, SimpleDataset

BACKENDS = ["asyncio", "trio"]
ONE_QUICK = ["asyncio", pytest.param("trio", marks=pytest.mark.slow)]


class Numbers:
    """Item i: a small array of the number i, and i itself."""

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
    """The numbers of all batches, one list each."""
    return [batch[1].tolist() for batch in batches]


def numbers(n=12):
    """0, 1, ... n - 1."""
    return SimpleDataset(list(range(n)))


async def collect(loader):
    """The batches of a pass."""
    return [batch async for batch in loader]


@contextlib.asynccontextmanager
async def turns_of_the_loop():
    """A list that grows by one whenever the loop comes round."""
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
    """The batches of a pass, in a loop of its own."""

    async def main():
        async with AsyncDataLoader(dataset, batch_size, **{"num_workers": 2, **options}) as loader:
            return await collect(loader)

    return anyio.run(main, backend=backend)


def never():
    raise LookupError("there is no such thing here")


class OneWay:
    """Can be pickled, and not be unpickled."""

    def __reduce__(self):
        return never, ()


class Souvenirs:
    """Texts, and here and there what cannot come back from a worker process."""

    def __init__(self, n, bad):
        self.n = n
        self.bad = frozenset(bad)

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return f"sample {index}", OneWay() if index in self.bad else index
