"""Daemon threads that belong to one loader, awaited from asyncio or trio.

Not the event loop's own threads, because those outlive the loader, are shared with the caller, and keep the
interpreter from exiting while one of them is stuck.
"""

from __future__ import annotations

import _thread
import asyncio
import contextlib
import queue
import sys
import threading
import time
from typing import TYPE_CHECKING, Any, Literal, TypeVar

import anyio

from aioloader.errors import ThreadStartError
from aioloader.foundation.concurrency import Notify, loop_notifier
from aioloader.foundation.thread_start import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable


T = TypeVar("T")

# What is called in this way takes a second at most; a thread that the interpreter ends never answers.
_END_S = 3.0
_FINALIZER_S = 0.01


def run_off_loop(fn: Callable[[], object]) -> None:
    """Call a function that may block: in a new thread, without waiting for it, if an event loop runs in this one.

    Otherwise as `run_uninterrupted`. For finalizers: the garbage collector may run in any thread. Python ignores what a
    finalizer raises, so Ctrl-C is signalled again when this has returned.
    """
    if _in_a_loop():
        _begin(fn, or_else=fn)
        return
    try:
        run_uninterrupted(fn)
    except KeyboardInterrupt:
        _begin(_interrupt_soon, or_else=_thread.interrupt_main)


def _interrupt_soon() -> None:
    time.sleep(_FINALIZER_S)  # the finalizer must have returned: nothing signals that
    _thread.interrupt_main()


def run_uninterrupted(fn: Callable[[], object]) -> None:
    """Call a function to its end, although Ctrl-C may come: that is raised in the main thread, so another one calls it.

    The KeyboardInterrupt is raised when the function has ended, or after some seconds. If the system refuses the other
    thread, this one calls it.
    """
    if threading.get_ident() != threading.main_thread().ident:
        fn()
        return
    ended = _thread.allocate_lock()
    ended.acquire()
    outcome: list[BaseException | Literal["returned", "refused"]] = []

    def run() -> None:
        try:
            fn()
            outcome.append("returned")
        except BaseException as error:
            outcome.append(error)
        finally:
            ended.release()

    def refuse() -> None:
        outcome.append("refused")
        ended.release()

    _begin(run, or_else=refuse)
    try:
        ended.acquire(timeout=_END_S)
    finally:
        if not outcome:  # interrupted
            ended.acquire(timeout=_END_S)
        if outcome == ["refused"]:
            fn()
    if outcome and isinstance(error := outcome.pop(), BaseException):
        raise error


def _begin(fn: Callable[[], object], *, or_else: Callable[[], object]) -> None:
    """Call a function in a new thread, or another one, from any thread, if the system refuses that."""

    def start() -> None:
        try:
            start_thread(fn, "aioloader-end")
        except ThreadStartError:
            or_else()

    try:
        # Started from another new thread, because `Thread.start` waits for locks of `threading`, which this thread may
        # hold when the collector interrupts it.
        _thread.start_new_thread(start, ())
    except RuntimeError:
        or_else()


def _in_a_loop() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        trio = sys.modules.get("trio")
        return trio is not None and bool(trio.lowlevel.in_trio_run())
    return True


class _Job:
    __slots__ = ("abandoned", "args", "done", "error", "finished", "fn", "lock", "notify", "result")

    def __init__(self, fn: Callable[..., Any], args: tuple[Any, ...], notify: Notify) -> None:
        self.fn = fn
        self.args = args
        self.notify = notify
        self.done = anyio.Event()
        self.lock = threading.Lock()
        self.finished = False
        self.abandoned: Callable[[], object] | None = None
        self.result: Any = None
        self.error: BaseException | None = None

    def run(self) -> None:
        try:
            self.result = self.fn(*self.args)
        except BaseException as error:
            self.error = error

    def notify_done(self) -> None:
        with self.lock:
            self.finished = True
            abandoned = self.abandoned
        if abandoned is not None:
            abandoned()
        else:
            self.notify(self.done.set)


def _nothing() -> None:
    pass


class ThreadsClosedError(RuntimeError):
    """A function was to run in threads that are closed."""


class Threads:
    """Up to `limit` threads, started when first needed.

    Args:
        limit: most functions that run at a time, at least 1.
        name: prefix of the threads' names.
    """

    def __init__(self, limit: int, name: str) -> None:
        self._limit = limit
        self._name = name
        self._queue: queue.SimpleQueue[_Job | None] = queue.SimpleQueue()
        self._threads: list[threading.Thread] = []
        self._idle = 0
        self._backlog = 0
        self._lock = threading.Lock()
        self._closed = False

    @property
    def backlog(self) -> int:
        """Return the number of functions that wait for a thread."""
        return self._backlog

    async def run(self, fn: Callable[..., T], /, *args: Any) -> T:
        """Call `fn(*args)` in a thread.

        On cancellation it waits for the function to end, so that what it uses can be freed.

        Raises:
            ThreadStartError: the system refuses the first thread.
            ThreadsClosedError: the threads are closed.
        """
        job = self._start(fn, args)
        try:
            await job.done.wait()
        except BaseException:
            with anyio.CancelScope(shield=True):
                await job.done.wait()
            raise
        result: T = self._outcome(job)
        return result

    def start(self, fn: Callable[..., object], /, *args: Any) -> None:
        """Call `fn(*args)` in a thread, and do not wait for it. Its result and its error are lost.

        To be called in an event loop.
        """
        self._start(fn, args)

    async def run_abandonable(
        self, fn: Callable[..., T], /, *args: Any, abandoned: Callable[[], object] = _nothing
    ) -> T:
        """Call `fn(*args)` in a thread.

        On cancellation it returns at once; `abandoned` is then called when the function has ended, in its
        thread (or here, if it had ended already). The abandoned thread does not count against the limit.
        """
        job = self._start(fn, args)
        try:
            await job.done.wait()
        except BaseException:
            with job.lock:
                finished = job.finished
                if not finished:
                    job.abandoned = self._give_back(abandoned)
            if finished:
                abandoned()
            raise
        result: T = self._outcome(job)
        return result

    def widen(self) -> None:
        """Allow one more thread. From any thread."""
        with self._lock:
            self._limit += 1
            # Queued functions start no threads later: they need one now, or they wait until another one ends.
            if self._backlog and len(self._threads) < self._limit and not self._closed:
                with contextlib.suppress(ThreadStartError):  # then they wait
                    self._add()
                    self._backlog -= 1

    def _give_back(self, abandoned: Callable[[], object]) -> Callable[[], object]:
        self.widen()

        def call() -> None:
            with self._lock:
                self._limit -= 1
            abandoned()

        return call

    @staticmethod
    def _outcome(job: _Job) -> Any:
        if job.error is not None:
            try:
                raise job.error
            finally:
                job.error = None  # breaks the cycle error -> traceback -> frame -> job -> error
        return job.result

    def _start(self, fn: Callable[..., Any], args: tuple[Any, ...]) -> _Job:
        job = _Job(fn, args, loop_notifier())
        with self._lock:
            if self._closed:
                raise ThreadsClosedError(f"threads {self._name!r} are closed")
            if self._idle:
                self._idle -= 1
            elif not (len(self._threads) < self._limit and self._added()):
                self._backlog += 1
            self._queue.put(job)
        return job

    def _added(self) -> bool:
        """Add a thread; return False if the system refuses it and other threads can do its work."""
        try:
            self._add()
        except ThreadStartError:
            if not self._threads:
                raise
            return False
        return True

    def _add(self) -> None:
        self._threads.append(start_thread(self._work, f"{self._name}-{len(self._threads)}"))

    def _work(self) -> None:
        while (job := self._queue.get()) is not None:
            job.run()
            with self._lock:
                if self._backlog:
                    self._backlog -= 1
                else:
                    self._idle += 1
            job.notify_done()
            del job

    def close(self, timeout_s: float = 0.4) -> None:
        """Let running functions end, for `timeout_s` seconds at most (0: without waiting), then give them up."""
        with self._lock:
            self._closed = True
            threads, self._threads = self._threads, []
        for _ in threads:
            self._queue.put(None)
        deadline = time.monotonic() + timeout_s
        for thread in threads if timeout_s else ():
            if thread is not threading.current_thread():
                thread.join(max(0.0, deadline - time.monotonic()))


async def run_in_own_thread(name: str, fn: Callable[[], T], *, or_here: bool = False) -> T:
    """Call a function in a new thread, and wait for its end, also when cancelled; then the thread ends too.

    Args:
        name: name of the thread.
        fn: the function.
        or_here: call it in this thread if the system refuses another one, although it may block.

    Raises:
        ThreadStartError: the system refuses the thread.
    """
    threads = Threads(1, name)
    try:
        return await threads.run(fn)
    except ThreadStartError:
        if not or_here:
            raise
        return fn()
    finally:  # asyncio's own cancellation passes a shield
        threads.close(0)
