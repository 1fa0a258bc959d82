"""Datasets and iteration functions that the loader's tests share."""

import asyncio
import contextlib
import hashlib
import os
import sys
import threading
import time

import anyio
import anyio.lowlevel
import cloudpickle
import numpy as np

from aioloader import AsyncDataLoader, SimpleDataset
from aioloader.foundation.pytree import flatten
from aioloader.foundation.types import ItemLocation, ReadPlan, Spans
from tests.executors import pool

# Workers need not import this module and its imports at every start.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


class Made:
    """Dataset of a caller, whose items a function makes from their indices."""

    def __init__(self, n, make):
        self.n, self.make = n, make

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return self.make(index)


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


def digest(batches):
    """Return a hash of the structure, the dtypes and the values of batches."""
    total = hashlib.sha256()
    for batch in batches:
        structure, leaves = flatten(batch)
        total.update(repr(structure).encode())
        for leaf in map(np.asarray, leaves):
            total.update(repr((leaf.shape, leaf.dtype)).encode())
            total.update(np.ascontiguousarray(leaf))
    return total.hexdigest()


def numbers(n=12):
    """Yield 0, 1, ... n - 1."""
    return SimpleDataset(list(range(n)))


async def collect(loader):
    """Return the batches of an epoch."""
    return [batch async for batch in loader]


def churn(loader):
    """Reuse a loader's memory several times."""
    for _ in range(3):
        for _ in loader:
            pass


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


def souvenirs(n, bad):
    """Return a dataset of texts, with some objects that cannot be sent back from a worker process."""
    return Made(n, lambda index: (f"sample {index}", OneWay() if index in bad else index))


class Position:
    """Source of n numbers with a state."""

    def __init__(self, n):
        self.n = n
        self.place = 0

    def state_dict(self):
        return {"place": self.place}

    def load_state_dict(self, state):
        self.place = state["place"]


class Tape(Position):
    """The same, to be iterated asynchronously."""

    async def __aiter__(self):
        while self.place < self.n:
            self.place += 1
            await anyio.lowlevel.checkpoint()
            yield self.place - 1
        self.place = 0


class Hanging:
    """Threads and processes that hang; processes leave a file named after their number."""

    def __init__(self, folder):
        self.folder = folder
        self.threads = 0

    def hang(self):
        self.threads += 1
        self.mark(os.getpid())
        threading.Event().wait(60)

    def mark(self, pid):
        """Note that a process hangs."""
        (self.folder / str(pid)).touch()

    def marked(self, pid):
        return (self.folder / str(pid)).exists()


class ByteSource:
    """Byte source of the bytes 0, 1, ..., with the methods that every source has."""

    paths = ("the numbers",)

    async def plan(self, spans):
        start = np.arange(len(spans), dtype=np.int64)
        return ReadPlan(len(spans), start, np.ones(len(spans), np.int64), spans.offset)

    async def read(self, plan, out):
        out[: len(plan.reads)] = bytes(plan.reads.tolist())
        return []

    def close(self):
        pass


class Bytes:
    """Dataset of n items, whose item i is the byte i of a source."""

    decoder = staticmethod(lambda data, extra, location: data[0])

    def __init__(self, source, n):
        self.source, self.n = source, n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        raise NotImplementedError

    def open_source(self):
        return self.source

    def spans(self, indices):
        return Spans(np.zeros_like(indices), indices, np.ones_like(indices))

    def extras(self, indices):
        return None

    def location(self, index):
        return ItemLocation(index)
