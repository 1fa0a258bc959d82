"""Thread with an asyncio loop, for callers without one: blocking code, and trio.

The users of a process share one thread; closing the last user ends it. A forked process starts its own.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import os
import threading
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import anyio.lowlevel

from aioloader.errors import ForkedError, LoaderClosedError
from aioloader.foundation.concurrency import loop_notifier
from aioloader.foundation.forks import ForkGuard
from aioloader.foundation.opening import current_opening
from aioloader.foundation.thread_start import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine


T = TypeVar("T")

# Reentrant: the garbage collector may close a user while this thread holds it.
_lock = threading.RLock()
_shared: _Running | None = None


def in_asyncio() -> bool:
    """Return whether the calling task runs in an asyncio loop; False under trio."""
    token: Any = anyio.lowlevel.current_token().native_token
    return isinstance(token, asyncio.AbstractEventLoop)


class _Job(Generic[T]):
    """Coroutine that runs in the thread; `ended` is called there when its task has ended."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]], ended: Callable[[], object]) -> None:
        self._work = work
        self._ended = ended
        self._task: asyncio.Task[T] | None = None
        self._cancelled = False

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work())
        self._task.add_done_callback(self._end)
        if self._cancelled:
            self._task.cancel()

    def _end(self, task: asyncio.Task[T]) -> None:
        if not task.cancelled():
            task.exception()  # asyncio logs one that nobody asks for
        self._ended()

    def cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()

    def result(self) -> T:
        assert self._task is not None
        return self._task.result()


class _Running:
    """Thread with its loop. `users` is guarded by the module's lock."""

    def __init__(self) -> None:
        self.guard = ForkGuard()
        self.users = 0
        self.loop = asyncio.new_event_loop()
        try:
            self._thread = start_thread(self._run, "aioloader-remote")
        except BaseException:
            self.loop.close()
            raise

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self._cancel_rest()
            self.loop.close()

    def _cancel_rest(self) -> None:
        """End what still runs, so that nobody waits for it."""
        tasks = asyncio.all_tasks(self.loop)
        for task in tasks:
            task.cancel()
        if tasks:
            self.loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))

    def end(self) -> None:
        self.loop.call_soon_threadsafe(self.loop.stop)
        if threading.current_thread() is not self._thread:
            self._thread.join(1.0)


def _after_fork() -> None:
    global _lock
    _lock = threading.RLock()  # another thread may have held it


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_after_fork)


class LoopThread:
    """Share of one user in the thread.

    Coroutines run there in a new context: the caller's context may name the loop of another library. It contains the
    caller's `Opening`, which limits them.
    """

    def __init__(self) -> None:
        global _shared
        with _lock:
            if _shared is None or _shared.guard.forked:
                _shared = _Running()
            running = _shared
            running.users += 1
            self._running: _Running | None = running
        self._jobs: set[_Job[Any]] = set()

    def call(self, fn: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Run an async function there, and wait for it. Ctrl-C cancels it and waits for its end.

        Raises:
            RuntimeError: the share is closed, or was closed meanwhile.
            LoaderClosedError: the loader that is being opened was left.
            ForkedError: this process was forked from the one that has the thread.
        """
        return self.begin(fn, *args)()

    def begin(self, fn: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> Callable[[], T]:
        """Begin to run an async function there; return a function that waits for it and raises what `call` does."""
        ended = threading.Event()
        return partial(self._wait, *self._start(fn, args, ended.set), ended)

    def _wait(self, job: _Job[T], loop: asyncio.AbstractEventLoop, ended: threading.Event) -> T:
        opening = current_opening.get()

        def cancel() -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed
                loop.call_soon_threadsafe(job.cancel)

        try:
            with contextlib.nullcontext() if opening is None else opening.ending(cancel):
                ended.wait()
        except BaseException:
            loop.call_soon_threadsafe(job.cancel)
            ended.wait()
            raise
        finally:
            self._jobs.discard(job)
        return self._result(job)

    async def run(self, fn: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Run an async function there from another event loop. Cancellation cancels it there and waits for its end."""
        ended = anyio.Event()
        notify = loop_notifier()
        job, loop = self._start(fn, args, lambda: notify(ended.set))
        try:
            await ended.wait()
        except BaseException:
            loop.call_soon_threadsafe(job.cancel)
            with anyio.CancelScope(shield=True):
                await ended.wait()
            raise
        finally:
            self._jobs.discard(job)
        return self._result(job)

    def _start(
        self, fn: Callable[..., Coroutine[Any, Any, T]], args: tuple[Any, ...], ended: Callable[[], object]
    ) -> tuple[_Job[T], asyncio.AbstractEventLoop]:
        running = self._running
        if running is None:
            raise RuntimeError("the byte source is closed")
        if running.guard.forked:
            raise ForkedError()
        job = _Job(lambda: fn(*args), ended)
        self._jobs.add(job)
        if self._running is None:  # closed meanwhile, perhaps before the job was among those that it cancels
            job.cancel()
        context = contextvars.Context()
        context.run(current_opening.set, current_opening.get())
        running.loop.call_soon_threadsafe(job.start, context=context)
        return job, running.loop

    def _result(self, job: _Job[T]) -> T:
        try:
            return job.result()
        except asyncio.CancelledError:
            if self._running is None:
                raise RuntimeError("the byte source was closed while it was read") from None
            opening = current_opening.get()
            if opening is not None and opening.cancelled:
                raise LoaderClosedError("the loader was left while it was being opened") from None
            raise

    def close(self) -> None:
        """Release the share, and cancel what runs for it; may be called twice, from any thread."""
        global _shared
        running, self._running = self._running, None
        if running is None or running.guard.forked:
            return
        with contextlib.suppress(RuntimeError):  # the loop is closed
            for job in list(self._jobs):
                running.loop.call_soon_threadsafe(job.cancel)
        with _lock:
            running.users -= 1
            last = running.users == 0
            if last and _shared is running:
                _shared = None
        if last:
            running.end()
