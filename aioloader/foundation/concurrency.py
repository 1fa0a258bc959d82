"""Building blocks for tasks of an event loop: notifications, reading sockets, shared ownership, coroutines made when
first run, and the concurrent execution of the chunks of a batch.

Tasks that live longer than the call that starts them: the supervisors of epochs and of image services.

Such a task opens a task group and closes it, inside itself, so that no group is open across a caller's code.
"""

from __future__ import annotations

import asyncio
import contextvars
import functools
import threading
from collections.abc import Awaitable, Callable, Coroutine, Generator, Sequence
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from aioloader.foundation.types import Chunk, ChunkResult

if TYPE_CHECKING:
    import socket


TURN_S = 0.002
"""Seconds that a task computes before it lets the other tasks of its event loop run."""

Notify = Callable[[Callable[[], object]], None]


def loop_notifier(loop: Any = None) -> Notify:
    """Return a function that schedules a callback on an event loop, from any thread.

    Args:
        loop: the loop, as anyio's native token; None: the one running now.

    The callback is dropped if that loop has ended by then: no task is left that waits for it.
    """
    token: Any = loop or anyio.lowlevel.current_token().native_token
    schedule = getattr(token, "call_soon_threadsafe", None) or token.run_sync_soon

    def notify(callback: Callable[[], object]) -> None:
        try:
            schedule(callback)
        except RuntimeError:  # asyncio: the loop is closed; trio.RunFinishedError is one too
            pass

    return notify


async def turn(loop: Any) -> None:
    """Let the other tasks of the running loop run once; `loop` is anyio's native token of it."""
    if isinstance(loop, asyncio.AbstractEventLoop):
        await asyncio.sleep(0)  # a checkpoint of anyio does the same with ten calls more
    else:
        await anyio.lowlevel.checkpoint()


class Notification:
    """Condition that tasks wait for: `set` wakes the tasks that wait now, and later ones wait for the next `set`.

    It has no state, so check the condition before `wait`.
    """

    __slots__ = ("_waiters",)

    def __init__(self) -> None:
        self._waiters: list[asyncio.Future[None] | anyio.Event] = []

    def set(self) -> None:
        """Wake all waiting tasks. From the loop's thread only."""
        waiters, self._waiters = self._waiters, []
        for waiter in waiters:
            if isinstance(waiter, anyio.Event):
                waiter.set()
            elif not waiter.done():  # else its task is cancelled
                waiter.set_result(None)

    async def wait(self) -> None:
        """Wait for the next `set`."""
        try:
            task = asyncio.current_task()
        except RuntimeError:  # trio
            task = None
        # One for each task that waits: nothing of a loop that has ended is left behind. An event of anyio does the same
        # as a future of asyncio with ten calls more.
        waiter = anyio.Event() if task is None else task.get_loop().create_future()
        self._waiters.append(waiter)
        try:
            await (waiter.wait() if isinstance(waiter, anyio.Event) else waiter)
        finally:
            if waiter in self._waiters:
                self._waiters.remove(waiter)


async def read_each(sock: socket.socket, read: Callable[[], bool]) -> None:
    """Call `read` whenever a socket is readable, until it returns False.

    Under asyncio the socket stays registered with the loop, which calls `read` itself: so no task is woken and no
    system call is needed to wait for the next message. There `read` runs outside of any task.

    Args:
        sock: the socket; `read` returns False once it is closed.
        read: reads what there is; it may be called when there is nothing to read.

    Raises:
        OSError, ValueError: the socket is closed already.
        Exception: what `read` raised.
    """
    loop: Any = anyio.lowlevel.current_token().native_token
    if not isinstance(loop, asyncio.AbstractEventLoop):
        await _read_in_turns(sock, read)
        return
    ended: asyncio.Future[None] = loop.create_future()

    def ready() -> None:
        try:
            if not ended.done() and not read():
                ended.set_result(None)
        except Exception as error:
            ended.set_exception(error)

    number = sock.fileno()  # the same later, when the socket may be closed
    try:
        loop.add_reader(number, ready)
    except NotImplementedError:  # the default event loop of Windows
        await _read_in_turns(sock, read)
        return
    try:
        await ended
    finally:
        loop.remove_reader(number)


async def _read_in_turns(sock: socket.socket, read: Callable[[], bool]) -> None:
    while True:
        await anyio.wait_readable(sock)
        if not read():
            return


class RefCount:
    """Count of the holders of a resource, which the last one to leave frees. From any thread.

    Args:
        free: called once, in the thread of the last one to leave.
    """

    def __init__(self, free: Callable[[], object]) -> None:
        self._free = free
        self._count = 1
        self._lock = threading.Lock()

    def enter(self) -> None:
        """Add a holder; the creator is the first one."""
        with self._lock:
            self._count += 1

    def leave(self) -> None:
        """Remove a holder."""
        with self._lock:
            self._count -= 1
            last = self._count == 0
        if last:
            self._free()


class Deferred(Coroutine[Any, Any, None]):
    """Coroutine ``fn(*args)`` that is made at its first step.

    A loop that ends cancels its tasks, and asyncio never runs the coroutine of a task that had not begun. An ordinary
    coroutine then warns that it "was never awaited", although nothing is wrong: the caller has left, and the loop too.
    """

    def __init__(self, fn: Callable[..., Coroutine[Any, Any, None]], args: tuple[Any, ...]) -> None:
        self._fn = fn
        self._args = args
        self._made: Coroutine[Any, Any, None] | None = None
        self.__name__ = getattr(fn, "__name__", "deferred")
        self.__qualname__ = getattr(fn, "__qualname__", "deferred")

    def _coroutine(self) -> Coroutine[Any, Any, None]:
        if self._made is None:
            self._made = self._fn(*self._args)
        return self._made

    def __await__(self) -> Generator[Any, Any, None]:
        return self._coroutine().__await__()

    def send(self, value: Any) -> Any:
        return self._coroutine().send(value)

    def throw(self, error: Any, *rest: Any) -> Any:
        if self._made is None:
            raise error
        return self._made.throw(error, *rest)

    def close(self) -> None:
        if self._made is not None:
            self._made.close()


def deferred(fn: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., Deferred]:
    """Return an async function like `fn` whose coroutines are made when they are first run; see `Deferred`."""

    @functools.wraps(fn)
    def make(*args: Any) -> Deferred:
        return Deferred(fn, args)

    return make


async def run_each(chunks: Sequence[Chunk], run: Callable[[Chunk], Awaitable[ChunkResult]]) -> ChunkResult:
    """Run chunks concurrently; return their merged result.

    Args:
        chunks: at least one; each is released at the end, also one that never began.
        run: runs a chunk and releases it.

    Raises:
        Exception: the first one that `run` raised, once all are done.

    Cancellation cancels all chunks.
    """
    if len(chunks) == 1:
        return await run(chunks[0])
    result = ChunkResult()
    errors: list[Exception] = []
    waiting = {id(chunk): chunk for chunk in chunks}

    async def one(chunk: Chunk) -> None:
        del waiting[id(chunk)]
        try:
            result.merge(await run(chunk))
        except Exception as error:
            errors.append(error)

    try:
        async with anyio.create_task_group() as tasks:
            for chunk in chunks:
                tasks.start_soon(deferred(one), chunk)
    finally:
        for chunk in waiting.values():  # those whose task never began
            chunk.release()
    if errors:
        raise errors[0]
    return result


# asyncio keeps only weak references to tasks.
_tasks: set[asyncio.Task[None]] = set()


def spawn(supervise: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
    """Start a supervisor in the running event loop, asyncio's or trio's.

    Args:
        supervise: the supervisor, which raises nothing.
        name: name of the task.
    """
    token: Any = anyio.lowlevel.current_token().native_token
    if isinstance(token, asyncio.AbstractEventLoop):
        # A loop that ends at once never runs it, and a deferred coroutine then does not warn.
        task = token.create_task(deferred(supervise)(), name=name)
        _tasks.add(task)
        task.add_done_callback(_tasks.discard)
        return
    import trio

    # As under asyncio, it runs with the caller's context variables.
    trio.lowlevel.spawn_system_task(supervise, name=name, context=contextvars.copy_context())
