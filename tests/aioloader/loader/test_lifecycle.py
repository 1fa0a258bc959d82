"""Tests of the ends of epochs, loaders and processes: no thread, process or file is left."""

import asyncio
import contextlib
import gc
import os
import signal
import subprocess
import sys
import textwrap
import threading

import anyio
import psutil
import pytest
import sniffio

from aioloader import AsyncDataLoader, DataLoader, SampleError
from aioloader.executors import InlineExecutor
from tests.aioloader.loader.programs import run_program
from tests.aioloader.loader.samples import Numbers, labels
from tests.cases import on_both_loops, with_cases
from tests.conftest import LOOKS
from tests.executors import pool

pytestmark = pytest.mark.own_workers


@pytest.fixture(autouse=True, scope="module")
def warm_up():
    """Use Python's libraries once, so that the objects they keep after a first use do not count."""
    for executor in ("thread", "process"):
        with DataLoader(Numbers(20), 5, **pool(executor, 1)) as loader:
            list(loader)


async def settle(remains):
    """Wait until nothing remains; collect garbage again and again, because another thread may have held it."""
    for _ in range(LOOKS):
        found = remains()
        if not found:
            return
        gc.collect()
        await anyio.sleep(0.02)
    pytest.fail(f"left behind: {found}")


def more_than(before, left):
    return {kind: texts for kind, texts in left.items() if len(texts) > len(before.get(kind, []))}


@with_cases(("how", "close"), [("exhausted", False), ("exception", True), ("break", True), ("break", False)])
def test_a_blocking_loader_leaves_nothing(executor, how, close, warm_up, leftovers):
    loader = DataLoader(Numbers(40, 0.001), 5, **pool(executor, 1))
    with contextlib.suppress(LookupError):
        for _ in loader:
            if how == "exception":
                raise LookupError
            if how == "break":
                break
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


@with_cases(
    ("how", "close"),
    [("exhausted", False), ("exception", True), ("break", True), ("break", False), ("cancelled", True)],
)
@on_both_loops
async def test_an_async_loader_leaves_nothing(executor, how, close, warm_up, leftovers):
    if sniffio.current_async_library() == "trio" and (not close or how == "exception"):
        pytest.skip("trio ends no loader by itself; and an epoch that is over is the same")

    async def use():
        loader = AsyncDataLoader(Numbers(40, 0.001), 5, **pool(executor, 1))
        async with loader if close else contextlib.nullcontext():
            async for _ in loader:
                if how == "exception":
                    raise LookupError
                if how == "break":
                    break
                if how == "cancelled":
                    scope.cancel()
                    await anyio.sleep(60)

    before = leftovers()  # the loop's descriptors
    with anyio.CancelScope() as scope, contextlib.suppress(LookupError):
        await use()
    assert scope.cancelled_caught == (how == "cancelled")
    await settle(lambda: more_than(before, leftovers()))


@pytest.mark.parametrize("face", [DataLoader, AsyncDataLoader])
async def test_what_the_collector_ends_does_not_hold_the_loop(face, executor, request, warm_up, leftovers):
    """The garbage collector may find an unclosed loader in any thread; an error in a finaliser fails the test."""

    def use():
        loader = face(Numbers(40), 5, **pool(executor, 1))
        if face is DataLoader:
            next(iter(loader))
        return loader

    def remains():
        more = more_than(before, leftovers())
        more.pop("threads", None)  # asyncio's thread stays
        threads = [t for t in threading.enumerate() if t not in of_others and t.name.startswith("aioloader")]
        return more or threads

    before = leftovers()
    of_others = set(threading.enumerate())  # such as those of samples that never end
    gc.disable()
    try:
        loader = await asyncio.to_thread(use)
        if face is AsyncDataLoader:
            async for batch in loader:
                del batch  # it holds memory of the loader
                break
        request.getfixturevalue("no_blocking")  # not before: in its own loop a loader may block
        ring = [loader]
        ring.append(ring)
        del loader, ring
    finally:
        gc.enable()
    await settle(remains)


@pytest.mark.parametrize(
    "moment", [0, 30, *(pytest.param(n, marks=pytest.mark.slow) for n in range(5, 60, 10))]
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
    closing, cancelled = asyncio.Event(), threading.Event()
    loop = asyncio.get_running_loop()

    class Slow(InlineExecutor):
        workers = 2

        def close(self):
            loop.call_soon_threadsafe(closing.set)
            assert cancelled.wait(60)
            super().close()

    async def use():
        async with AsyncDataLoader(Numbers(20), 5, executor=Slow()) as loader:
            async for _ in loader:
                pass

    task = asyncio.create_task(use())
    await closing.wait()
    task.cancel()
    await asyncio.sleep(0)
    cancelled.set()
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
        loader = AsyncDataLoader(Numbers(40), 5, **pool(executor, 1))
        if steps % 2:
            loader._runtime.open()  # the steps of the first epoch's work in a thread
        kept = asyncio.run(main(loader, steps))
        assert (kept is None) == (held == "nothing")
        del kept, loader
        gc.collect()


async def test_closing_does_not_wait_for_a_long_transform(warm_up, leftovers):
    # Seconds: longer than a test may take.
    async with AsyncDataLoader(Numbers(8, 1000), 4, num_workers=1) as loader:
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
            try:  # one worker sleeps, and one computes
                if index: os.mkdir({folder!r} + "/sleeping") or time.sleep(60)
            except FileExistsError:
                open({folder!r} + "/spinning", "w").close()
                while True:
                    pass
            return index

    loader = aioloader.DataLoader(Slow(), 4, num_workers=2)
    batches = iter(loader)
    while len(loader._runtime.open().executor.pids) < 2 or {begun} and len(os.listdir({folder!r})) < 2:
        time.sleep(0.01)
    print(*loader._runtime.open().executor.pids, flush=True)
    {then}
    next(batches)
"""


@pytest.mark.parametrize("begun", [False, True], ids=["starting", "busy"])
@pytest.mark.parametrize(
    "then", ["pass", pytest.param("os.fork()", marks=pytest.mark.slow)], ids=["alone", "with a fork"]
)
def test_workers_leave_when_their_parent_is_killed(begun, then, tmp_path):
    code = textwrap.dedent(PARENT).format(begun=begun, then=then, folder=str(tmp_path))
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


def test_an_interpreter_that_ends_with_live_loaders_just_ends():
    code = """
        import asyncio
        import aioloader
        class Data:
            def __len__(self): return 1000
            def __getitem__(self, i): return i
        kept = []
        async def main():
            for executor in ("thread", "process"):
                loader = aioloader.AsyncDataLoader(Data(), 4, executor=executor, num_workers=1)
                batches = aiter(loader)
                print((await anext(batches)).tolist())
                kept.extend([loader, batches])
        asyncio.run(main())
        loader = aioloader.DataLoader(Data(), 4, num_workers=1)
        batches = iter(loader)
        print(next(batches).tolist())
    """
    done = run_program(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0, 1, 2, 3]\n" * 3, "")


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


def test_closing_needs_no_garbage_collector():
    code = """
        import gc, os
        gc.disable()
        import aioloader
        class Data:
            def __len__(self): return 40
            def __getitem__(self, i): return i
        def held():
            with open("/proc/self/maps") as maps:
                found = [line.split()[0] for line in maps if "memfd:aioloader" in line or "/dev/zero" in line]
            sizes = [int(stop, 16) - int(start, 16) for start, stop in (each.split("-") for each in found)]
            return len(os.listdir("/proc/self/fd")), sum(sizes) >> 20
        for options in {"executor": "inline"}, {"executor": "thread"}, {"executor": "process", "num_workers": 1}:
            def use():
                with aioloader.DataLoader(Data(), 4, **options) as loader:
                    list(loader)
            use()
            before = held()
            use()
            print(before == held(), held()[1])
    """
    done = run_program(code)
    assert (done.stdout, done.stderr) == ("True 0\n" * 3, "")
