"""Tests of executors and numbers of workers chosen by measurement, on loaders that really run."""

from __future__ import annotations

import itertools
import random
import threading
import time

import anyio
import numpy as np
import pytest

import aioloader
from aioloader import AsyncDataLoader, DataLoader, transforms
from aioloader.datasets import SimpleDataset
from tests.aioloader.loader.samples import Numbers
from tests.cases import with_cases

pytestmark = pytest.mark.own_workers

# Starting interpreters takes most of the time: one of each kind is enough for the quick run.
ALL = [
    pytest.param({"executor": executor, **more}, id=f"{executor} {more}", marks=marks)
    for executor, more, marks in [
        ("auto", {}, ()),
        ("auto", {"num_workers": "auto"}, pytest.mark.slow),
        ("auto", {"num_workers": 2}, pytest.mark.slow),
        ("process", {"num_workers": "auto"}, pytest.mark.slow),
        ("thread", {"num_workers": "auto"}, pytest.mark.slow),
    ]
]


@pytest.fixture(autouse=True)
def four_cores(monkeypatch):
    """Pretend four cores, so that there is a choice on a machine with one core too."""
    monkeypatch.setattr("aioloader.loader.options.cores_of_rank", lambda: 4)


class Counted(Numbers):
    """Dataset that cannot be pickled; records the requested items."""

    def __init__(self, n=100, pause_s=0.0):
        super().__init__(n, pause_s)
        self.lock = threading.Lock()
        self.asked = []

    def __getitem__(self, index):
        with self.lock:
            self.asked.append(index)
        return super().__getitem__(index)


def jitter(image, label):
    """Draw from the global generators, as foreign code does."""
    return image + np.int32(1000 * random.random()) + np.random.randint(1000, dtype=np.int32), label


def spin(image, label):
    until = time.thread_time() + 0.002
    while time.thread_time() < until:
        pass
    return image, label


def taken(loader, passes=1):
    return [[(image.tolist(), label.tolist()) for image, label in loader] for _ in range(passes)]


@pytest.mark.parametrize("options", ALL)
def test_batches_are_the_same_for_every_choice(options, photo_rec):
    chain = [transforms.RandomResizedCrop(24), transforms.RandomHorizontalFlip()]
    data = aioloader.ImageRecordDataset(photo_rec).transform_first(transforms.Compose(chain))
    with DataLoader(data, 4, shuffle=True, num_workers=0) as loader:
        wanted = taken(loader, 3)
    with DataLoader(data, 4, shuffle=True, **options) as loader:
        assert taken(loader, 3) == wanted
        stats = loader.stats()
    assert stats.executor in ("thread", "process", "inline")
    assert 1 <= stats.workers <= 4
    assert stats.tuning
    assert loader.explain().endswith(stats.tuning)


def test_draws_from_global_generators_are_those_of_processes():
    data = SimpleDataset(Numbers(40)).transform(jitter)
    with DataLoader(data, 4, executor="process", num_workers=1) as loader:
        wanted = taken(loader, 2)
    random.seed(5)
    np.random.seed(5)
    before = random.getstate(), np.random.get_state(legacy=False)["state"]["pos"]
    with DataLoader(data, 4, executor="auto", num_workers=2) as loader:
        assert taken(loader, 2) == wanted
        assert loader.stats().executor == "process"
    # No draw happened in this process.
    assert (random.getstate(), np.random.get_state(legacy=False)["state"]["pos"]) == before


def test_what_cannot_be_sent_runs_in_threads_and_every_sample_once():
    data = Counted(200, 0.001)
    with DataLoader(data, 5, shuffle=True, executor="auto") as loader:
        labels = [int(label) for _, batch in loader for label in batch]
        stats = loader.stats()
    assert sorted(labels) == sorted(data.asked) == list(range(200))
    assert stats.executor == "thread"
    assert "cannot be sent to worker processes" in stats.tuning


async def test_in_ones_own_loop_under_asyncio(no_blocking):
    async with AsyncDataLoader(Numbers(120, 0.001), 6, shuffle=True, executor="auto") as loader:
        for _ in range(2):
            seen = [int(label) async for _, batch in loader for label in batch]
            assert sorted(seen) == list(range(120))
        assert loader.stats().executor == "process"


def test_under_trio():
    async def main():
        async with AsyncDataLoader(Counted(60), 6, executor="auto") as loader:
            return [int(label) async for _, batch in loader for label in batch]

    assert anyio.run(main, backend="trio") == list(range(60))


@pytest.mark.slow
def test_a_loop_that_is_left_while_measuring_loses_nothing():
    with DataLoader(Numbers(200, 0.001), 4, executor="process", num_workers="auto") as loader:
        for after in (1, 3, 10):
            for number, _ in enumerate(loader):
                if number == after:
                    break
        assert [label for _, batch in loader for label in batch.tolist()] == list(range(200))


def test_a_failed_sample_is_one_error():
    with DataLoader(Numbers(40, fail=[7]), 4, executor="auto", on_error="skip") as loader:
        labels = [int(label) for _, batch in loader for label in batch]
        assert labels == [n for n in range(40) if n != 7]
        assert [error.index for error in loader.errors] == [7]


class Nowhere(Numbers):
    """Dataset that can be pickled, but not unpickled in another process."""

    def __setstate__(self, state):
        raise ImportError("no such module here")


def test_workers_that_cannot_load_the_dataset_are_replaced_by_threads():
    with DataLoader(Nowhere(30), 5, executor="auto") as loader:
        assert [int(label) for _, batch in loader for label in batch] == list(range(30))
        stats = loader.stats()
    assert stats.executor == "thread"
    assert "worker processes are not available" in stats.tuning


def test_too_little_memory_for_processes(monkeypatch):
    monkeypatch.setattr("aioloader.executors.auto.available_memory", lambda: 1 << 10)
    with DataLoader(Numbers(200, 0.001), 5, executor="auto") as loader:
        assert len(list(loader)) == 40
        stats = loader.stats()
    assert stats.executor == "thread"
    assert "too large to be sent" in stats.tuning


def test_samples_that_cost_nothing_are_made_here(photo_rec, monkeypatch):
    # A microsecond passes between two looks, however busy the machine is.
    monkeypatch.setattr("aioloader.executors.runner.perf_counter", itertools.count(0, 1e-6).__next__)
    data = aioloader.RecordFileDataset(photo_rec)
    with DataLoader(data, 4, batchify_fn=None, executor="auto") as loader:
        for _ in range(60):
            assert len(list(loader)) == -(-len(data) // 4)
            if loader.stats().executor == "inline":
                break
        stats = loader.stats()
    assert stats.executor == "inline"
    assert "less than to hand it to a worker" in stats.tuning


def test_no_workers_stay_none():
    with DataLoader(Numbers(8), 4, executor="auto", num_workers=0) as loader:
        assert len(list(loader)) == 2
        assert loader.stats().executor == "inline"


@pytest.mark.slow
def test_workers_that_are_too_many_leave(leftovers):
    import psutil

    before = set(psutil.Process().children())

    def workers():
        return len(set(psutil.Process().children()) - before)

    data = SimpleDataset(Numbers(2000)).transform(spin)
    with DataLoader(data, 10, executor="process", num_workers="auto") as loader:
        for number, _ in enumerate(batch for _ in range(20) for batch in loader):
            if loader.stats().tuning.startswith("By measurement") and number > 20:
                break
        stats = loader.stats()
        assert stats.tuning.startswith("By measurement")
        deadline = time.monotonic() + 60
        while workers() > stats.workers and time.monotonic() < deadline:
            for _ in loader:
                break
        assert workers() == stats.workers
        assert loader.stats().restarts == 0


@with_cases("value", ["many", "", 1.5, -1])
def test_other_words_are_refused(value):
    with pytest.raises((TypeError, ValueError), match="num_workers"):
        DataLoader(Numbers(8), 4, num_workers=value)
