"""Tests of a loader's threads: awaited from any loop, cancelled without leaking."""

import threading
from functools import partial

import anyio
import pytest

from aioloader.foundation.concurrency import RefCount, loop_notifier
from aioloader.foundation.threads import Threads
from tests.cases import on_both_loops


@pytest.fixture
def threads():
    threads = Threads(2, "test")
    yield threads
    threads.close()


@on_both_loops
async def test_results_and_errors_come_back(threads):
    assert await threads.run(divmod, 7, 2) == (3, 1)
    with pytest.raises(ZeroDivisionError):
        await threads.run(divmod, 7, 0)


async def test_no_more_threads_than_the_limit(threads):
    running, release = threading.Semaphore(0), threading.Event()

    def work():
        running.release()
        release.wait(30)

    async with anyio.create_task_group() as tasks:
        for _ in range(20):
            tasks.start_soon(threads.run, work)
        for _ in range(2):
            assert await anyio.to_thread.run_sync(running.acquire, True, 30)
        backlog = threads.backlog
        release.set()
    assert backlog == 18


async def test_an_idle_thread_is_used_again(threads):
    names = {await threads.run(lambda: threading.current_thread().name) for _ in range(5)}
    assert names == {"test-0"}


async def test_cancelling_waits_for_the_function_to_end(threads):
    begun, release = threading.Event(), threading.Event()
    ends = []

    def work():
        begun.set()
        release.wait(30)
        ends.append("function")

    async def call():
        try:
            await threads.run(work)
        finally:
            ends.append("call")

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(call)
        await anyio.to_thread.run_sync(begun.wait)
        tasks.cancel_scope.cancel()
        with anyio.CancelScope(shield=True):
            await anyio.wait_all_tasks_blocked()
        release.set()
    assert ends == ["function", "call"]


async def test_an_abandoned_function_reports_its_end(threads):
    begun, release, left = threading.Event(), threading.Event(), threading.Event()

    def work():
        begun.set()
        release.wait(30)

    async with anyio.create_task_group() as tasks:
        tasks.start_soon(partial(threads.run_abandonable, work, abandoned=left.set))
        await anyio.to_thread.run_sync(begun.wait)
        tasks.cancel_scope.cancel()
    assert not left.is_set()
    assert await threads.run(lambda: 5) == 5
    release.set()
    assert left.wait(30)


async def test_what_waits_for_an_abandoned_thread_gets_another_one(threads):
    release, left = threading.Event(), threading.Semaphore(0)
    results = []

    async def wait():
        results.append(await threads.run(lambda: 5))

    async with anyio.create_task_group() as tasks:
        with anyio.CancelScope() as scope:
            async with anyio.create_task_group() as stuck:
                for _ in range(2):
                    call = partial(threads.run_abandonable, release.wait, abandoned=left.release)
                    stuck.start_soon(call)
                await anyio.wait_all_tasks_blocked()
                for _ in range(3):
                    tasks.start_soon(wait)
                await anyio.wait_all_tasks_blocked()
                assert (threads.backlog, results) == (3, [])
                scope.cancel()
        with anyio.fail_after(30):
            while len(results) < 3:
                await anyio.sleep(0.001)
    assert threads.backlog == 0
    release.set()
    assert left.acquire(timeout=30)
    assert left.acquire(timeout=30)


def test_a_closed_pool_has_no_threads_left():
    threads = Threads(3, "closing")
    anyio.run(threads.run, len, ())
    threads.close()
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("closing")]

    async def main():
        with pytest.raises(RuntimeError, match="closed"):
            await threads.run(len, ())

    anyio.run(main)


def test_a_callback_for_a_loop_that_has_ended_is_dropped():
    async def main():
        return loop_notifier()

    for backend in ("asyncio", "trio"):
        anyio.run(main, backend=backend)(lambda: None)


def test_the_last_holder_frees():
    freed = []
    holders = RefCount(lambda: freed.append(1))
    holders.enter()
    holders.leave()
    assert not freed
    holders.leave()
    assert freed == [1]
