"""Tests of DataLoader: the same batches for plain loops, with and without a loader thread."""

import asyncio
import gc
import signal
import threading

import anyio
import numpy as np
import pytest

import aioloader
from aioloader import ArrayDataset, DataLoader
from aioloader.loader import sync_loader
from tests.aioloader.loader.samples import Numbers, labels
from tests.executors import pool


def test_a_batch_sampler_is_asked_for_its_order_in_the_callers_thread(executor):
    asked = []

    class Batches:
        def __iter__(self):
            asked.append(threading.current_thread())
            return iter([[len(asked)], [0]])

        def __len__(self):
            return 2

    with DataLoader(Numbers(9), batch_sampler=Batches(), **pool(executor, 1)) as loader:
        first, second = iter(loader), iter(loader)
        assert asked == [threading.current_thread()] * 2
        assert labels(second) == [[2], [0]]
        assert labels(first) == [[1], [0]]


def test_inline_and_in_memory_data_need_no_thread():
    before = set(threading.enumerate())
    for loader in (
        DataLoader(Numbers(10), 5, num_workers=0),
        DataLoader(ArrayDataset(np.arange(10), np.arange(10)), 5),
    ):
        assert labels([tuple(batch) for batch in loader]) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
        for thread in set(threading.enumerate()) - before:
            assert thread.name == "aioloader-watch"  # watched the opening, and may take a moment to end
            thread.join(timeout=30)
            assert not thread.is_alive()


async def test_it_works_inside_a_running_loop():
    with DataLoader(Numbers(10), 5, num_workers=1) as loader:
        assert labels(loader) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]


def test_an_iterator_keeps_its_loader_alive():
    for batch in DataLoader(Numbers(10), 5, num_workers=1):
        gc.collect()
        assert len(batch[1]) == 5


def test_an_async_for_names_the_other_class():
    async def main():
        async for _ in DataLoader(Numbers(), 5):
            pass

    with pytest.raises(TypeError, match=r"aioloader\.AsyncDataLoader"):
        asyncio.run(main())


def test_two_threads_may_not_share_an_iterator():
    refused = threading.Event()

    class Waiting(Numbers):
        def __getitem__(self, index):
            refused.wait()
            return super().__getitem__(index)

    batches = iter(DataLoader(Waiting(40), 10, executor="thread", num_workers=1))
    errors = []

    def ask():
        try:
            next(batches)
        except RuntimeError as error:
            errors.append(str(error))
            refused.set()

    threads = [threading.Thread(target=ask) for _ in range(2)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    (error,) = errors
    assert "another thread" in error


def test_a_closed_loader_says_so():
    loader = DataLoader(Numbers(), 5, executor="thread")
    batches = iter(loader)
    next(batches)
    loader.close()
    loader.close()
    with pytest.raises(aioloader.LoaderClosedError):
        next(batches)
    with pytest.raises(aioloader.LoaderClosedError):
        iter(loader)


def test_state_counts_what_the_caller_took_not_what_was_prefetched(executor):
    with DataLoader(Numbers(40), 5, **pool(executor, 2), prefetch=6) as loader:
        batches = iter(loader)
        next(batches)
        next(batches)
        assert loader.state_dict()["consumed"] == 10


def test_an_interruption_of_the_first_pass_leaves_no_thread(monkeypatch):
    """Ctrl-C, as a signal, while the loader's thread starts; afterwards the loader works as usual."""

    def interrupt(number, frame):
        raise KeyboardInterrupt

    def run(main):
        signal.pthread_kill(threading.main_thread().ident, signal.SIGUSR1)
        return run_loop(main)

    run_loop = anyio.run
    before = signal.signal(signal.SIGUSR1, interrupt)
    try:
        with DataLoader(aioloader.SimpleDataset(range(8)), 4, executor="thread", num_workers=1) as loader:
            monkeypatch.setattr(sync_loader.anyio, "run", run)
            with pytest.raises(KeyboardInterrupt):
                iter(loader)
            monkeypatch.undo()
            assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7]]
            portals = [thread for thread in threading.enumerate() if thread.name == "aioloader-portal"]
            assert len(portals) == 1
    finally:
        signal.signal(signal.SIGUSR1, before)
