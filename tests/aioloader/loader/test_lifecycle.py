"""Tests of the ends of epochs, loaders and processes: no thread, process or file is left."""

import asyncio
import contextlib
import gc
import os
import random
import signal
import subprocess
import sys
import textwrap
import threading
import time

import anyio
import psutil
import pytest

from aioloader import AsyncDataLoader, DataLoader, SampleError
from aioloader.executors import InlineExecutor
from tests.aioloader.loader.programs import run_program
from tests.aioloader.loader.samples import Numbers, labels
from tests.combinations import combinations
from tests.conftest import LOOKS
from tests.executors import pool

pytestmark = pytest.mark.own_workers

EXECUTORS = ["inline", "thread", "process"]
CLOSED = {"closed": True, "collected": False}


@pytest.fixture(autouse=True, scope="module")
def warm_up():
    """Use Python's libraries once, so that the objects they keep after a first use do not count."""
    for executor in ("thread", "process"):
        with DataLoader(Numbers(20), 5, **pool(executor, 2)) as loader:
            list(loader)


@pytest.mark.parametrize(
    ("executor", "how", "close"),
    combinations(EXECUTORS, ["exhausted", "exception", "break"], CLOSED),
)
def test_a_blocking_loader_leaves_nothing(executor, how, close, warm_up, leftovers):
    loader = DataLoader(Numbers(40, 0.001), 5, **pool(executor, 2))
    try:
        for _ in loader:
            if how == "exception":
                raise ValueError("mine")
            if how == "break":
                break
    except ValueError:
        pass
    if close:
        loader.close()
    del loader


def test_a_loader_whose_sample_failed_is_collected_with_what_was_raised(warm_up, leftovers):
    loader = DataLoader(Numbers(40, fail=(22,)), 5, num_workers=1)
    with pytest.raises(SampleError) as caught:
        list(loader)
    assert loader.errors == [caught.value]
    assert len(loader.error_report()["errors"]) == 1
    del loader, caught


@pytest.mark.parametrize(
    ("executor", "how", "close"),
    combinations(EXECUTORS, ["exhausted", "exception", "break", "cancelled"], CLOSED, together=2),
)
async def test_an_async_loader_leaves_nothing(executor, how, close, warm_up, leftovers):
    async def body(loader):
        async for _ in loader:
            if how == "exception":
                raise ValueError("mine")
            if how == "break":
                break
            if how == "cancelled":
                await anyio.sleep(60)

    async def use():
        loader = AsyncDataLoader(Numbers(40, 0.001), 5, **pool(executor, 2))
        if not close:
            await body(loader)
            return
        async with loader:
            await body(loader)

    before = leftovers()  # the loop's descriptors
    task = asyncio.create_task(use())
    if how == "cancelled":
        await asyncio.sleep(0.4)
        task.cancel()
    results = await asyncio.gather(task, return_exceptions=True)
    del task
    kinds = {"exception": ValueError, "cancelled": asyncio.CancelledError}
    assert isinstance(results[0], kinds.get(how, type(None)))
    results.clear()
    gc.collect()
    for _ in range(LOOKS):
        more = {kind: texts for kind, texts in leftovers().items() if len(texts) > len(before.get(kind, []))}
        if not more:
            return
        gc.collect()
        await asyncio.sleep(0.02)
    pytest.fail(f"left behind: {more}")


@pytest.mark.parametrize("face", [DataLoader, AsyncDataLoader])
async def test_what_the_collector_ends_does_not_hold_the_loop(face, executor, request, warm_up, leftovers):
    """The garbage collector may find an unclosed loader in any thread."""

    def use():
        loader = face(Numbers(40), 5, **pool(executor, 1))
        if face is DataLoader:
            next(iter(loader))
        return loader

    before = leftovers()
    of_others = set(threading.enumerate())  # such as those of samples that never end
    gc.disable()
    try:
        loader = await asyncio.to_thread(use)
        if face is AsyncDataLoader:
            async for _ in loader:
                break
        request.getfixturevalue("no_blocking")  # not before: in its own loop a loader may block
        ring = [loader]
        ring.append(ring)
        del loader, ring
    finally:
        gc.enable()
    for _ in range(LOOKS):
        # An error in a finaliser fails the test. Again, because the thread that made the loader may still hold it.
        gc.collect()
        more = {kind: texts for kind, texts in leftovers().items() if len(texts) > len(before.get(kind, []))}
        more.pop("threads", None)  # asyncio's thread stays
        threads = [t for t in threading.enumerate() if t not in of_others and t.name.startswith("aioloader")]
        if not more and not threads:
            return
        await asyncio.sleep(0.02)
    pytest.fail(f"left behind: {more} {threads}")


@pytest.mark.parametrize(
    "moment",
    [*range(0, 60, 15), *(pytest.param(n, marks=pytest.mark.slow) for n in range(3, 60, 3) if n % 15)],
)
async def test_a_cancel_at_any_moment_frees_everything(moment, warm_up, leftovers):
    async def use():
        async with AsyncDataLoader(Numbers(200, 0.0005), 5, num_workers=2) as loader:
            async for _ in loader:
                pass

    task = asyncio.create_task(use())
    for _ in range(moment):
        await asyncio.sleep(0.005)
    task.cancel()
    await asyncio.gather(task, return_exceptions=True)


async def test_a_cancel_while_the_loader_is_closing_leaves_nothing(warm_up, leftovers):
    closing = asyncio.Event()
    loop = asyncio.get_running_loop()

    class Slow(InlineExecutor):
        workers = 2

        def close(self):
            loop.call_soon_threadsafe(closing.set)
            time.sleep(0.1)
            super().close()

    async def use():
        async with AsyncDataLoader(Numbers(20), 5, executor=Slow()) as loader:
            async for _ in loader:
                pass

    task = asyncio.create_task(use())
    await closing.wait()
    task.cancel()
    with pytest.raises(asyncio.CancelledError):
        await task


@pytest.mark.parametrize(
    "held",
    [
        pytest.param("loader", marks=pytest.mark.slow),
        "iterator",
        pytest.param("nothing", marks=pytest.mark.slow),
    ],
)
def test_a_loop_that_ends_at_any_step_of_a_pass_ends_it_without_a_word(executor, held, warm_up, leftovers):
    """Warnings about an unawaited coroutine or a running process fail the test."""

    async def main(loader, steps):
        batches = aiter(loader)
        asking = asyncio.ensure_future(anext(batches))
        for _ in range(steps):
            await asyncio.sleep(0)
        return {"loader": loader, "iterator": (batches, asking)}.get(held)

    for steps in range(12):
        loader = AsyncDataLoader(Numbers(40), 5, **pool(executor, 2))
        if steps % 2:
            loader._runtime.open()  # the steps of the first epoch's work in a thread
        kept = asyncio.run(main(loader, steps))
        assert (kept is None) == (held == "nothing")
        del kept, loader
        gc.collect()


def test_trio_leaves_nothing(executor, warm_up, leftovers):
    async def main():
        async with AsyncDataLoader(Numbers(40, 0.001), 5, **pool(executor, 2)) as loader:
            async for _ in loader:
                break
            with anyio.move_on_after(0.05):
                async for _ in loader:
                    await anyio.sleep(60)

    anyio.run(main, backend="trio")


async def test_closing_does_not_wait_for_a_long_transform(warm_up, leftovers):
    loader = AsyncDataLoader(Numbers(8, 1000), 4, num_workers=2)  # seconds: longer than a test may take
    async with loader:
        with anyio.move_on_after(0.5):
            await anext(aiter(loader))


PARENT = """
    import os, sys, threading, time
    import aioloader

    # It must not outlive the test run, should that be killed.
    threading.Thread(target=lambda: (sys.stdin.read(), os._exit(1)), daemon=True).start()

    class Slow:
        def __len__(self):
            return 100
        def __getitem__(self, index):
            open(os.path.join({folder!r}, "begun"), "w").close()
            if {spin}:
                while True:
                    pass
            time.sleep(60)

    loader = aioloader.DataLoader(Slow(), 4, num_workers=2)
    batches = iter(loader)
    while len(loader._runtime.open().executor.pids) < 2 or {begun} and not os.listdir({folder!r}):
        time.sleep(0.01)
    print(*loader._runtime.open().executor.pids, flush=True)
    {then}
    next(batches)
"""


@pytest.mark.parametrize(
    ("begun", "spin"), [(False, False), (True, False), (True, True)], ids=["starting", "sleeping", "spinning"]
)
@pytest.mark.parametrize(
    "then", ["pass", pytest.param("os.fork()", marks=pytest.mark.slow)], ids=["alone", "with a fork"]
)
def test_workers_leave_when_their_parent_is_killed(begun, spin, then, tmp_path):
    code = textwrap.dedent(PARENT).format(begun=begun, spin=spin, then=then, folder=str(tmp_path))
    parent = subprocess.Popen(
        [sys.executable, "-c", code],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        workers = [psutil.Process(int(pid)) for pid in parent.stdout.readline().split()]
        assert len(workers) == 2
        os.kill(parent.pid, signal.SIGKILL)
        _gone, there = psutil.wait_procs(workers, timeout=30)
        # A zombie has ended; as its parent is dead, the system's first process has to reap it.
        assert [worker for worker in there if _runs(worker)] == []
    finally:
        os.killpg(parent.pid, signal.SIGKILL)
        parent.wait()
        parent.stdin.close()
        parent.stdout.close()


def _runs(process):
    try:
        return process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_an_interpreter_that_ends_with_a_live_loader_just_ends():
    code = """
        import aioloader
        class Data:
            def __len__(self): return 1000
            def __getitem__(self, i): return i
        loader = aioloader.DataLoader(Data(), 4, num_workers=2)
        batches = iter(loader)
        print(next(batches).tolist())
    """
    done = run_program(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0, 1, 2, 3]\n", "")


def test_a_loader_used_in_a_fork_is_refused_clearly():
    loader = DataLoader(Numbers(10), 5, num_workers=1)
    list(loader)
    read, write = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            iter(loader)
        except Exception as error:
            os.write(write, str(error).encode())
        os._exit(0)
    os.waitpid(pid, 0)
    os.close(write)
    assert b"forked" in os.read(read, 1000)
    os.close(read)
    assert labels(loader) == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    loader.close()


@pytest.mark.parametrize("wanted", [4, pytest.param(50, marks=pytest.mark.slow)])
def test_killed_workers_change_nothing(wanted):
    options = {"shuffle": True, "num_workers": 2}
    dataset = Numbers(80 * wanted, 0.0015)
    with DataLoader(Numbers(len(dataset)), 20, **{**options, "num_workers": 0}) as loader:
        expected = [(images.tobytes(), numbers.tolist()) for images, numbers in loader]
    draw = random.Random(3)
    kills = 0
    with DataLoader(dataset, 20, **options) as loader:
        executor = loader._runtime.open().executor
        found = []
        for images, numbers in loader:
            found.append((images.tobytes(), numbers.tolist()))
            if kills < wanted and len(found) > 3 * kills:
                pids = executor.pids
                if pids:
                    time.sleep(draw.random() * 0.02)
                    with contextlib.suppress(ProcessLookupError):
                        os.kill(draw.choice(pids), signal.SIGKILL)
                        kills += 1
        restarts = loader.stats().restarts
    assert kills == wanted
    assert restarts >= wanted / 3  # a worker may be hit again before its death is detected
    assert found == expected


def test_closing_needs_no_garbage_collector(executor):
    workers = None if executor == "inline" else 2
    code = f"""
        import gc, os
        gc.disable()
        import aioloader
        class Data:
            def __len__(self): return 40
            def __getitem__(self, i): return i
        def held():
            with open("/proc/self/maps") as maps:
                return len(os.listdir("/proc/self/fd")), sum("memfd:aioloader" in line for line in maps)
        def use():
            with aioloader.DataLoader(Data(), 4, executor={executor!r}, num_workers={workers}) as loader:
                list(loader)
        use()
        before = held()
        use()
        print(before == held(), held()[1])
    """
    done = run_program(code)
    assert (done.stdout, done.stderr) == ("True 0\n", "")
