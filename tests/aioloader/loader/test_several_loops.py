"""Tests of a loader used in several loops, threads or processes; other event loops."""

import asyncio
import os
import signal
import threading

import anyio
import pytest

from aioloader import AsyncDataLoader, DataLoader, SampleError
from tests.aioloader.loader.programs import run_program
from tests.aioloader.loader.samples import Made, Numbers, labels

pytestmark = pytest.mark.own_workers


def test_two_loops_at_once_are_refused_clearly(leftovers):
    entered, tried = threading.Event(), threading.Event()
    results = []

    async def first(loader):
        async for batch in loader:
            results.append(batch[1].tolist())
            entered.set()
            while not tried.is_set():
                await anyio.sleep(0.01)

    async def second(loader):
        async for _ in loader:
            pass

    loader = AsyncDataLoader(Numbers(20), 5, num_workers=1)
    thread = threading.Thread(target=lambda: asyncio.run(first(loader)))
    thread.start()
    entered.wait()
    try:
        with pytest.raises(RuntimeError, match="make a loader for each loop"):
            asyncio.run(second(loader))
    finally:
        tried.set()
        thread.join()
    assert results == [list(range(n, n + 5)) for n in range(0, 20, 5)]
    asyncio.run(second(loader))  # one after the other is allowed
    asyncio.run(loader.aclose())


@pytest.mark.parametrize("executor", ["thread", pytest.param("process", marks=pytest.mark.slow)])
def test_a_loop_that_was_closed_in_the_middle_of_a_pass_is_no_hang(executor):
    loader = AsyncDataLoader(Numbers(400), 5, executor=executor, num_workers=1)
    loop = asyncio.new_event_loop()
    batches = aiter(loader)
    loop.run_until_complete(anext(batches))
    tasks = asyncio.all_tasks(loop)

    async def another():
        async for _ in loader:
            return

    with pytest.raises(RuntimeError, match="make a loader for each loop"):
        asyncio.run(another())
    # Clean up after such a program.
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loader.aclose())
    loop.close()


def test_two_threads_in_a_loader_without_workers_are_refused_clearly():
    inside, tried = threading.Event(), threading.Event()

    class Waiting(Numbers):
        def __getitem__(self, index):
            if index == 7:
                inside.set()
                tried.wait()
            return super().__getitem__(index)

    loader = DataLoader(Waiting(20), 5, num_workers=0)
    results = []
    thread = threading.Thread(target=lambda: results.extend(labels(loader)))
    thread.start()
    inside.wait()
    try:
        with pytest.raises(RuntimeError, match="each thread needs its own loader"):
            next(iter(loader))
    finally:
        tried.set()
        thread.join()
    assert results == [list(range(n, n + 5)) for n in range(0, 20, 5)]
    assert len(labels(loader)) == 4


def test_uvloop():
    uvloop = pytest.importorskip("uvloop")

    async def main():
        async with AsyncDataLoader(Numbers(40), 5, num_workers=2) as loader:
            batches = aiter(loader)
            with anyio.move_on_after(0):  # a call that is cancelled loses nothing
                await anext(batches)
            seen = [numbers.tolist() async for _, numbers in batches]
            os.kill(loader._runtime.open().executor.pids[0], signal.SIGKILL)
            seen += [numbers.tolist() async for _, numbers in loader]
            async for _ in loader:
                break
        return seen

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == 2 * [list(range(n, n + 5)) for n in range(0, 40, 5)]


@pytest.mark.parametrize("on_error", ["raise", "skip", "replace"])
def test_failed_samples_under_uvloop(on_error):
    uvloop = pytest.importorskip("uvloop")

    def make(index):
        if index in (7, 31):
            raise LookupError(index)
        return index

    def of_batch(start):
        if on_error == "skip":
            return [index for index in range(start, start + 5) if index not in (7, 31)]
        return [{7: 8, 31: 32}.get(index, index) for index in range(start, start + 5)]

    async def main():
        seen, errors = [], []
        async with AsyncDataLoader(Made(40, make), 5, num_workers=1, on_error=on_error) as loader:
            batches = aiter(loader)
            batches.continue_after_errors()
            for _ in range(8):
                try:
                    seen.append((await anext(batches)).tolist())
                except SampleError as error:
                    errors.append(error.index)
            return seen, errors or [error.index for error in loader.errors]

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        seen, errors = runner.run(main())
    whole = [start for start in range(0, 40, 5) if on_error != "raise" or start not in (5, 30)]
    assert seen == [of_batch(start) for start in whole]
    assert errors == [7, 31]


@pytest.mark.slow
def test_a_fork_of_the_parent_while_it_loads_and_holds_batches():
    code = """
        import gc, os, sys, warnings
        import numpy as np
        import aioloader
        warnings.filterwarnings("ignore", "This process", DeprecationWarning)  # of threads and forks, from 3.12 on
        class Data:
            def __len__(self): return 400
            def __getitem__(self, i): return np.full(1000, i)
        loader = aioloader.DataLoader(Data(), 10, num_workers=2)
        batches = iter(loader)
        held = [next(batches) for _ in range(3)]
        for leave in "at once", "as others do":
            child = os.fork()
            if child == 0:
                assert [batch[:, 0].tolist() for batch in held] == [list(range(n, n + 10)) for n in (0, 10, 20)]
                try:
                    next(batches)
                except aioloader.LoaderClosedError as error:
                    print(error, flush=True)
                if leave == "at once":
                    os._exit(0)
                del loader, batches, held
                gc.collect()
                sys.exit()
            print(os.waitpid(child, 0)[1], flush=True)
        seen = [batch[:, 0].tolist() for batch in held]
        del held
        seen += [batch[:, 0].tolist() for batch in batches]
        print(seen == [list(range(n, n + 10)) for n in range(0, 400, 10)])
        loader.close()
    """
    done = run_program(code)
    assert done.stderr == ""
    refused = "this loader belongs to the process that was forked; make a new one here\n0\n"
    assert done.stdout == f"{refused * 2}True\n"
