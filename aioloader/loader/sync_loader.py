"""`DataLoader`: the same loader for plain ``for`` loops, a thin layer over the async core.

If nothing has to be awaited (in-memory data, the inline executor on local files), the caller's thread runs the core
itself. Otherwise one daemon thread per loader runs an event loop and passes whole batches to the caller's thread.
"""

from __future__ import annotations

import contextlib
import queue
import threading
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn

import anyio
import anyio.lowlevel

from aioloader.errors import LoaderClosedError, single
from aioloader.foundation.concurrency import Notification, Notify, deferred, loop_notifier
from aioloader.foundation.threads import run_off_loop, run_uninterrupted
from aioloader.foundation.validation import describe_arguments
from aioloader.loader.async_loader import AsyncDataLoader
from aioloader.loader.base import BaseLoader
from aioloader.loader.epoch_iterator import Epoch, EpochIterator
from aioloader.loader.portal import Portal

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from aioloader.loader.runtime import LoaderRuntime
    from aioloader.pipeline.collate import Delivery
    from aioloader.pipeline.inline import InlinePipeline

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # those of `typing` have defaults from Python 3.13 on

    B = TypeVar("B", default=Any)
else:
    from typing import TypeVar

    B = TypeVar("B")

_AHEAD = 2
_CHECK_S = 1.0


class _HandOver:
    """An epoch that runs in the portal; its batches are queued for the caller's thread."""

    def __init__(self, runtime: LoaderRuntime, epoch: Epoch, portal: Portal) -> None:
        self._runtime = runtime
        self._epoch = epoch
        self._thread = portal.thread
        self._queue: queue.SimpleQueue[Delivery | BaseException | None] = queue.SimpleQueue()
        self._taken = Notification()
        self._notify: Notify | None = None
        self._scope: anyio.CancelScope | None = None
        self._stopped = False
        portal.start(self._pump)

    async def _pump(self) -> None:
        self._notify = loop_notifier()
        try:
            with anyio.CancelScope() as self._scope:
                if self._stopped:
                    return
                async with self._started() as running:
                    while (delivery := await running.next()) is not None:
                        self._queue.put(delivery)
                        while self._queue.qsize() >= _AHEAD:
                            await self._taken.wait()
            self._queue.put(None)
        except Exception as error:
            self._queue.put(single(error))  # raised inside the task group of `_started`
        finally:
            self._queue.put(LoaderClosedError("the loader was closed while this epoch was under way"))

    @contextlib.asynccontextmanager
    async def _started(self) -> AsyncIterator[Any]:
        await self._runtime.aopen()
        running = self._runtime.start(self._epoch)
        if running.supervise is None:
            yield running
            return
        async with anyio.create_task_group() as tasks:
            tasks.start_soon(deferred(running.supervise))
            yield running
            tasks.cancel_scope.cancel()

    def get(self) -> Delivery | None:
        """Return the next batch, or None at the end of the epoch; blocks."""
        while True:
            try:
                item = self._queue.get(timeout=_CHECK_S)
                break
            except queue.Empty:
                if not self._thread.is_alive():
                    raise LoaderClosedError("the loader's thread has ended; make a new loader") from None
        if self._notify is not None:
            self._notify(self._taken.set)
        if isinstance(item, BaseException):
            raise item
        return item

    @property
    def ready(self) -> bool:
        """Return True if the next batch is ready."""
        return not self._queue.empty()

    def stop(self) -> None:
        """End the epoch. From any thread."""
        self._stopped = True
        if self._notify is not None:
            self._notify(self._cancel)

    def _cancel(self) -> None:
        if self._scope is not None:
            self._scope.cancel()


class BlockingBatches(EpochIterator[B, "InlinePipeline | _HandOver"]):
    """One epoch of a `DataLoader`, as an iterator. Dropping it ends the epoch and keeps the workers."""

    def __init__(self, loader: DataLoader[B], runtime: LoaderRuntime) -> None:
        super().__init__(loader, runtime.begin())
        self._runtime = runtime
        self._lock = threading.Lock()
        if any(portal.thread is threading.current_thread() for portal in loader._portal_cell):
            raise RuntimeError("a DataLoader cannot be iterated in its own thread; use AsyncDataLoader there")
        # Work begins when the iterator is made, as in Gluon 2.
        running: InlinePipeline | _HandOver = (
            runtime.start_blocking(self._epoch)
            if runtime.can_block
            else _HandOver(runtime, self._epoch, loader._open_portal())
        )
        self._run(running)

    def __iter__(self) -> BlockingBatches[B]:
        return self

    def __next__(self) -> B:
        """Return the next batch; blocks. Raises as `AsyncBatches.__anext__` does, StopIteration at the end."""
        if not self._lock.acquire(blocking=False):
            raise RuntimeError(
                "another thread is waiting for the next batch of this iterator: make an iterator for each thread"
            )
        try:
            return self._next()
        finally:
            self._lock.release()

    next = __next__

    def _next(self) -> B:
        epoch, running = self._epoch, self._running
        if epoch.over:
            raise StopIteration
        assert running is not None
        self._runtime.check_open()
        requested = epoch.record_request()
        try:
            while True:
                delivery = running.get()
                if delivery is None:
                    epoch.finish()
                    raise StopIteration
                if epoch.take(delivery):
                    epoch.record_delivery(requested, delivery.samples, delivery.timeline)
                    batch: B = delivery.batch
                    return batch
        except Exception:
            self._end()
            raise


class DataLoader(BaseLoader, Generic[B]):
    """Loader for plain ``for`` loops, with the signature and the core of `AsyncDataLoader`.

    ::

        with aioloader.DataLoader(dataset, batch_size=64, shuffle=True) as loader:
            for images, labels in loader:
                ...

    One ``for`` is one epoch; the next one is the next epoch. ``break`` ends the epoch and keeps the workers. Batches
    arrive in the sampler's order, and are bit-identical for every executor and number of workers. A delivered batch
    stays valid as long as any view of it lives.

    ``with`` is optional: a loader that is garbage-collected ends its workers. It works inside a running event loop (a
    notebook), and blocks that loop while it waits. The event loop of the core runs in a thread of the loader.

    All arguments are those of `AsyncDataLoader`.

    Raises:
        ValueError, TypeError: an option is not allowed.
        MissingPackageError: `output` requires a package that is not installed.
    """

    def _set_up(self) -> None:
        self._runtime.parts.own_loop = True
        self._portal_cell: list[Portal] = []
        self._finalizer = weakref.finalize(
            self, run_off_loop, partial(_shutdown, self._runtime, self._portal_cell)
        )

    def _open_portal(self) -> Portal:
        if not self._portal_cell:
            portal = Portal()
            self._portal_cell.append(portal)
            try:
                portal.open()
            except BaseException:  # the next pass makes another one
                self._portal_cell.remove(portal)
                raise
        return self._portal_cell[0]

    def __enter__(self) -> DataLoader[B]:
        self._runtime.check_open()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End all epochs in progress, the workers and the thread, close files, release memory; within a second.

        Delivered batches stay valid. May be called twice.
        """
        if self._runtime.in_memory:
            _shutdown(self._runtime, self._portal_cell)
        elif self._finalizer.alive:
            run_uninterrupted(partial(_shutdown, self._runtime, self._portal_cell))
        self._finalizer.detach()

    def __iter__(self) -> BlockingBatches[B]:
        """Begin a new epoch."""
        return BlockingBatches(self, self._runtime)

    def __aiter__(self) -> NoReturn:
        raise TypeError("DataLoader is iterated with 'for'; for 'async for' use aioloader.AsyncDataLoader")


describe_arguments(DataLoader, AsyncDataLoader)


def _shutdown(runtime: LoaderRuntime, portal_cell: list[Portal]) -> None:
    if portal_cell and runtime.check_pid():
        portal_cell[0].stop()
    runtime.shutdown()
