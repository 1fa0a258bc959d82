"""State of one loader behind its front end: its parts, once they are open, and its epochs.

The runtime never refers to the loader that owns it, so the loader can be collected, and then closes the runtime.

A loader is opened in a thread: that can be left at any moment, and is reported if it takes long. The items of the next
batches are announced to a byte source that reads ahead.
"""

from __future__ import annotations

import asyncio
import contextlib
import contextvars
import threading
import weakref
from collections import deque
from typing import TYPE_CHECKING, Any

from aioloader.errors import LoaderClosedError, SampleError, ThreadStartError
from aioloader.foundation.forks import ForkGuard
from aioloader.foundation.opening import Opening, current_opening
from aioloader.foundation.stacks import DeferredWarnings
from aioloader.foundation.thread_start import start
from aioloader.foundation.threads import Threads
from aioloader.loader.epoch_iterator import Epoch
from aioloader.loader.outputs import make_converter
from aioloader.loader.parts import LoaderParts, close_parts
from aioloader.loader.planner import EpochPlanner
from aioloader.metrics import Metrics, Stats
from aioloader.observability.trace import Tracer
from aioloader.pipeline.epoch_runner import EpochRunner
from aioloader.pipeline.inline import InlinePipeline
from aioloader.pipeline.plan import BatchPlan, base_indices
from aioloader.pipeline.watchdog import ThreadWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator
    from contextlib import AbstractContextManager

    from aioloader.abc import ByteSource
    from aioloader.foundation.error_log import ErrorLog
    from aioloader.foundation.types import StorageStats
    from aioloader.loader.checkpoint import EpochCursor
    from aioloader.loader.options import LoaderOptions
    from aioloader.pipeline.context import PipelineContext
    from aioloader.receipts import Receipt


def announced(context: PipelineContext, plans: Iterable[BatchPlan]) -> Iterator[BatchPlan]:
    """Return an iterator over plans; the items of those that follow are announced to the byte source.

    Plans are taken ahead only for a source that reads ahead.

    Args:
        context: the shared parts.
        plans: the batches of an epoch, in order; taking them early has no effect but to compute them earlier.
    """
    source = context.source
    if source is not None and source.announced:
        return _announce(context, plans, source)
    return iter(plans)


def _announce(
    context: PipelineContext, plans: Iterable[BatchPlan], source: ByteSource
) -> Iterator[BatchPlan]:
    assert context.items.spans is not None
    waiting: deque[BatchPlan] = deque()
    ahead = 0
    for plan in plans:
        if len(plan.indices):
            source.announce(context.items.spans(base_indices(context.items, plan.indices)[1]))
        waiting.append(plan)
        ahead += len(plan.indices)
        while ahead - len(waiting[0].indices) >= source.announced:
            ahead -= len(waiting[0].indices)
            yield waiting.popleft()
    yield from waiting


_LEAVE_S = 0.5


async def open_in_thread(open_parts: Callable[[], object], timeout: float) -> None:
    """Call the function that opens a loader, in a thread, and wait for it.

    On cancellation it returns at once. The requests of the opening are cancelled then; what else the thread waits for,
    such as a file of a network drive, may keep it longer.

    Args:
        open_parts: opens the loader; blocking.
        timeout: most seconds that it may wait for one answer of a server.

    Raises:
        ThreadStartError: the system refuses the thread.
    """
    opening = Opening(timeout)
    warnings = DeferredWarnings()

    def run() -> None:
        current_opening.set(opening)
        with warnings.kept():
            open_parts()

    threads = Threads(1, "aioloader-open")
    try:
        await threads.run_abandonable(contextvars.Context().run, run, abandoned=lambda: None)
    except BaseException as error:
        opening.cancel()
        if isinstance(error, Exception):
            warnings.issue()
        raise
    finally:
        threads.close(0)
    warnings.issue()


def open_blocking(open_parts: Callable[[], object], timeout: float) -> None:
    """Call the function that opens a loader, and wait for it, in code without an event loop.

    Ctrl-C, which is raised in the main thread, cancels the requests of the opening. For that another thread opens the
    loader; what it has opened is kept or closed.

    Args:
        open_parts: opens the loader; blocking.
        timeout: most seconds that it may wait for one answer of a server.
    """
    if threading.get_ident() != threading.main_thread().ident:
        open_parts()
        return
    opening = Opening(timeout)
    errors: list[BaseException] = []
    warnings = DeferredWarnings()

    def run() -> None:
        current_opening.set(opening)
        try:
            with warnings.kept():
                open_parts()
        except BaseException as error:
            errors.append(error)

    thread = threading.Thread(target=run, name="aioloader-open", daemon=True)
    try:
        start(thread)
        thread.join()
    except ThreadStartError:
        open_parts()
    except BaseException:
        opening.cancel()
        if thread.is_alive():
            thread.join(_LEAVE_S)
        raise
    try:
        warnings.issue()
    finally:
        if errors:
            raise errors.pop()


@contextlib.contextmanager
def limits(timeout: float) -> Iterator[None]:
    """Return a context for opening a loader in the caller's thread, where no other limits are set."""
    if current_opening.get() is not None:
        yield
        return
    token = current_opening.set(Opening(timeout))
    try:
        yield
    finally:
        current_opening.reset(token)


def reported(name: str, after_s: float | None) -> AbstractContextManager[None]:
    """Return a context that logs a warning with the stack of this thread while it lasts long.

    Args:
        name: what is opened.
        after_s: seconds after which it is reported, and again at growing intervals; None: never.
    """
    if after_s is None:
        return contextlib.nullcontext()
    message = "no batch yet: the loader has been opening %s for %.1f s. It is at:\n%s"
    return ThreadWatch(message, name, after_s, stage="open")


def _runs_elsewhere(other: EpochRunner, loop: object) -> bool:
    """Return True if an epoch belongs to another event loop, and has begun there or may still begin."""
    if other.loop is loop or other.ended.is_set():
        return False
    return other.started or (isinstance(other.loop, asyncio.AbstractEventLoop) and other.loop.is_running())


class LoaderRuntime:
    """Parts, counters and epochs of one loader.

    Args:
        dataset: see `AsyncDataLoader`.
        options: checked options.
        errors: the loader's list of failed samples. Referred to weakly: the function that ends the workers of a
            collected loader holds the runtime, and must not hold the errors.

    Attributes:
        convert: converts a batch before it is delivered; None if it is delivered as it is.
        planner: makes the plans of the epochs, and keeps the progress of the caller.
        parts: chooses the parts, and makes them.
    """

    # The dataset is the caller's, of any class.
    def __init__(self, dataset: Any, options: LoaderOptions, errors: ErrorLog) -> None:
        self.planner = EpochPlanner(dataset, options)
        options = self.options
        self.metrics = Metrics()
        self._errors = weakref.ref(errors)
        self.closed = False
        self._context: PipelineContext | None = None
        self._final_stats: Stats | None = None  # of the parts that were closed
        self.tracer = None if options.trace is None else Tracer(options.trace)
        self._opening = threading.Lock()
        # The garbage collector may close the loader in the thread that has it.
        self._closing = threading.RLock()
        self._guard = ForkGuard()
        self.running: weakref.WeakSet[EpochRunner] = weakref.WeakSet()
        self.parts = LoaderParts(dataset, self.planner, self.metrics, traced=self.tracer is not None)
        self._latest: weakref.ref[Epoch] | None = None
        self._cursor: EpochCursor | None = None
        self.convert = make_converter(options.output, bool(options.pin_memory), options.device)

    @property
    def options(self) -> LoaderOptions:
        """Return the checked options."""
        return self.planner.options

    def _recorded_errors(self) -> list[SampleError]:
        errors = self._errors()
        return [] if errors is None else errors

    # -- what kind of epoch this is --------------------------------------------------------------------------------

    @property
    def inline(self) -> bool:
        """Return True if batches are made one at a time, when the caller asks for them."""
        return self.parts.inline

    @property
    def in_memory(self) -> bool:
        """Return True if opening and closing do not block, and so need no thread: the data are in memory."""
        return self.parts.in_memory

    @property
    def can_block(self) -> bool:
        """Return True if an epoch needs no event loop."""
        if not self.inline:
            return False
        if not self.is_open and not self.in_memory:
            open_blocking(self.open, self.options.timeout)
        context = self.open()
        source = context.source
        return source is None or (context.items.partial is None and source.blocks)

    # -- parts -----------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise if the loader cannot be used any more, or not in this process."""
        if self.closed:
            raise LoaderClosedError("this loader is closed; make a new one")
        if not self.check_pid():
            raise LoaderClosedError("this loader belongs to the process that was forked; make a new one here")

    def check_pid(self) -> bool:
        """Return True if this process made the loader; False in a fork of it."""
        return not self._guard.forked

    def open(self) -> PipelineContext:
        """Return the parts that all epochs share. The first call reads indexes and opens files. From any thread."""
        self.check_open()
        context = self._context
        if context is None:
            with self._opening:
                context = self._context
                if context is None:
                    stall_timeout = None if self.in_memory else self.options.stall_timeout
                    with limits(self.options.timeout), reported(self.parts.name, stall_timeout):
                        if self.tracer is not None:
                            self.tracer.open()
                        context = self.parts.make(self)
                    self._keep(context)
        return context

    async def aopen(self) -> None:
        """Do what `open` does, in a thread if that may block. Cancellation returns at once."""
        if self.is_open or self.in_memory:
            self.open()
        else:
            await open_in_thread(self.open, self.options.timeout)

    def _keep(self, context: PipelineContext) -> None:
        """Take the parts that a thread has opened, or close them if the loader was closed meanwhile."""
        with self._closing:
            if not self.closed:
                self._context = context
                return
        close_parts(context)
        raise LoaderClosedError("this loader was closed while it was being opened; make a new one")

    @property
    def is_open(self) -> bool:
        """Return True if `open` has nothing left to do."""
        return self._context is not None

    # -- epochs ---------------------------------------------------------------------------------------------------

    def begin(self) -> Epoch:
        """Return a new epoch, with the next number.

        Raises:
            RuntimeError: with rollover, another epoch is still under way.
        """
        self.check_open()
        latest = None if self._latest is None else self._latest()
        if latest is not None and not latest.over and self.options.last_batch == "rollover":
            raise RuntimeError(
                f"epoch {latest.number} is still under way, and with last_batch='rollover' its remaining "
                "samples belong to the next one: exhaust or delete that iterator first"
            )
        epoch = Epoch(
            self.planner.begin(),
            planner=self.planner,
            metrics=self.metrics,
            errors=self._recorded_errors,
            convert=self.convert,
            tracer=self.tracer,
            memory_usage=self.memory_usage,
            storage=self.storage_stats,
        )
        if self.options.batch_sampler is not None:
            # The caller may have seeded a global generator that its order is drawn from.
            epoch.plans()
        self._latest = weakref.ref(epoch)
        self._cursor = epoch.cursor
        return epoch

    def start_blocking(self, epoch: Epoch) -> InlinePipeline:
        """Start the work of an epoch that `can_block`."""
        return InlinePipeline(self.open(), epoch.plans().batches, True, epoch.trace)

    def start(self, epoch: Epoch) -> InlinePipeline | EpochRunner:
        """Start the work of an epoch, in the event loop that will run it.

        Raises:
            RuntimeError: an epoch of this loader is under way in another loop. Workers serve one loop at a time.
        """
        context = self.open()
        plans = epoch.plans()
        if self.inline and not plans.waits:
            return InlinePipeline(context, plans.batches, trace=epoch.trace)
        if self.options.measures:
            context.prefetch = self.parts.prefetch(context.source)
        if epoch.computed:
            plans.batches = announced(context, plans.batches)
        pipeline = EpochRunner(context, plans, epoch.trace, None if epoch.computed else self.parts.order)
        with self._opening:
            if any(_runs_elsewhere(other, pipeline.loop) for other in self.running):
                raise RuntimeError(
                    "this loader is in use in another event loop, or in one that has ended without ending its "
                    "tasks: make a loader for each loop, or end the other epoch first"
                )
            self.running.add(pipeline)
        return pipeline

    # -- state -----------------------------------------------------------------------------------------------------

    def load_state(self, state: dict[str, Any]) -> None:
        """Take up a state; see `AsyncDataLoader.load_state_dict`."""
        self.check_open()
        self.planner.load(state, fixed=self._context is not None)

    def receipt(self) -> Receipt:
        """Return the receipt of the latest epoch; see `AsyncDataLoader.receipt`."""
        return (self._cursor or self.planner.next).receipt()

    def stats(self) -> Stats:
        """Return a snapshot of the counters; see `AsyncDataLoader.stats`."""
        # In a fork the memory's lock may be held by a thread that does not exist there.
        context = self._context if self.check_pid() else None
        if context is not None:
            return self._snapshot(context)
        return self._final_stats or self.metrics.snapshot(self.options.workers, 0, (0, 0, 0))

    def _snapshot(self, context: PipelineContext) -> Stats:
        workers, source = self.parts.workers, context.source
        return self.metrics.snapshot(
            workers.workers,
            workers.restarts,
            context.memory.usage(),
            storage=None if source is None else source.stats(),
            config=self.parts.config(context),
        )

    def storage_stats(self) -> StorageStats | None:
        """Return the counters of the byte source; None without one, or while no files are open."""
        source = None if self._context is None else self._context.source
        return None if source is None else source.stats()

    def memory_usage(self) -> tuple[int, int, int]:
        """Return the bytes of slab memory in use now, their maximum so far, and the limit."""
        context = self._context
        return (0, 0, 0) if context is None else context.memory.usage()

    def shutdown(self) -> None:
        """End workers, close files, release memory. From any thread; blocks for a second at most."""
        with self._closing:
            if self.closed:
                return
            self.closed = True
            context, self._context = self._context, None
        for running in list(self.running):
            running.stop()
        if not self.check_pid():
            return
        latest = None if self._latest is None else self._latest()
        if latest is not None:
            latest.end()
        if context is not None:
            self._final_stats = self._snapshot(context)
            close_parts(context)
        if self.tracer is not None:
            self.tracer.close()
