"""A thread with an asyncio loop, for callers that have none: blocking code, and trio.

There is one for the process while anybody uses it; the last user to leave ends it. A fork starts its own.
"""

from __future__ import annotations

import asyncio
import contextvars
import os
import threading
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import sniffio

from aioloader.errors import ForkedError
from aioloader.foundation.concurrency import loop_notifier

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine

__all__ = ("LoopThread", "in_asyncio")

T = TypeVar("T")

# What the garbage collector finds while it is held may be a user that leaves.
_lock = threading.RLock()
_shared: _Running | None = None


def in_asyncio() -> bool:
    """Whether the calling task runs in an asyncio loop. Under trio it does not."""
    return sniffio.current_async_library() == "asyncio"


class _Job(Generic[T]):
    """A coroutine that runs in the thread; `ended` is called there once nothing of it is left."""

    def __init__(self, work: Callable[[], Coroutine[Any, Any, T]], ended: Callable[[], object]) -> None:
        self._work = work
        self._ended = ended
        self._task: asyncio.Task[T] | None = None
        self._cancelled = False

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._work())
        self._task.add_done_callback(lambda _: self._ended())
        if self._cancelled:
            self._task.cancel()

    def cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            self._task.cancel()

    def result(self) -> T:
        assert self._task is not None
        return self._task.result()


class _Running:
    """The thread. `users` is guarded by the module's lock."""

    def __init__(self) -> None:
        self.pid = os.getpid()
        self.users = 0
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._run, name="aioloader-remote", daemon=True)
        self._thread.start()

    def _run(self) -> None:
        asyncio.set_event_loop(self.loop)
        try:
            self.loop.run_forever()
        finally:
            self.loop.close()

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
    """A user's share of the thread.

    What runs there has a context of its own: the caller's says which kind of loop it runs in, and that is another one.
    """

    def __init__(self) -> None:
        global _shared
        with _lock:
            if _shared is None or _shared.pid != os.getpid():
                _shared = _Running()
            running = _shared
            running.users += 1
            self._running: _Running | None = running

    def call(self, fn: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """Run an async function there, and wait for it. On Ctrl-C it is cancelled and waited for."""
        ended = threading.Event()
        loop = self._loop()
        job = _Job(lambda: fn(*args), ended.set)
        loop.call_soon_threadsafe(job.start, context=contextvars.Context())
        try:
            ended.wait()
        except BaseException:
            loop.call_soon_threadsafe(job.cancel)
            ended.wait()
            raise
        return job.result()

    async def run(self, fn: Callable[..., Coroutine[Any, Any, T]], *args: Any) -> T:
        """The same from another event loop. On cancellation it is cancelled there and waited for."""
        ended = anyio.Event()
        notify = loop_notifier()
        loop = self._loop()
        job = _Job(lambda: fn(*args), lambda: notify(ended.set))
        loop.call_soon_threadsafe(job.start, context=contextvars.Context())
        try:
            await ended.wait()
        except BaseException:
            loop.call_soon_threadsafe(job.cancel)
            with anyio.CancelScope(shield=True):
                await ended.wait()
            raise
        return job.result()

    def _loop(self) -> asyncio.AbstractEventLoop:
        if self._running is None:
            raise RuntimeError("the byte source is closed")
        if self._running.pid != os.getpid():
            raise ForkedError()
        return self._running.loop

    def close(self) -> None:
        """Give the share back; may be called twice, from any thread."""
        global _shared
        running, self._running = self._running, None
        if running is None or running.pid != os.getpid():
            return
        with _lock:
            running.users -= 1
            last = running.users == 0
            if last and _shared is running:
                _shared = None
        if last:
            running.end()
