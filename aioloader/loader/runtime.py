"""What a loader is made of, apart from its face: the one place that chooses concrete parts.

The core never refers to the loader that owns it, so the loader can be collected and take the core down with it.
"""

from __future__ import annotations

import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

from aioloader.abc import Program
from aioloader.batchify import Stack
from aioloader.datasets.resolve import resolve
from aioloader.errors import LoaderClosedError
from aioloader.executors.shared_memory import SlabMemory, default_memory_limit
from aioloader.foundation.host_limits import available_cores
from aioloader.loader.epoch import Epoch
from aioloader.loader.executor_factory import loader_config, make_executor
from aioloader.loader.order import EpochOrder
from aioloader.loader.outputs import converter
from aioloader.metrics import Metrics, Stats
from aioloader.observability.trace import Tracer
from aioloader.pipeline.async_map import AsyncMapExecutor, cut
from aioloader.pipeline.context import ItemSource, PipelineContext
from aioloader.pipeline.epoch_runner import EpochRunner
from aioloader.pipeline.inline import InlinePipeline
from aioloader.pipeline.iterable_plan import StreamPlan
from aioloader.receipts import DeliveryLog, Receipt
from aioloader.storage import LocalByteSource, MappedByteSource

if TYPE_CHECKING:
    from aioloader.errors import SampleError
    from aioloader.foundation.error_log import ErrorLog
    from aioloader.loader.options import LoaderOptions

__all__ = ("LoaderRuntime",)

_FEW_PATHS = 64
_ENDLESS = 2**62


def _is_default(batchify: Any) -> bool:
    """Whether samples are written to rows, and `batchify` is asked only about those that do not fit."""
    return batchify is None or type(batchify) is Stack or getattr(batchify, "by_rows", False)


def _runs_elsewhere(other: EpochRunner, loop: Any) -> bool:
    """Whether a pass belongs to another event loop, and has begun there or may still begin."""
    if other.loop is loop or other.ended.is_set():
        return False
    return bool(other.started or getattr(other.loop, "is_running", bool)())


class LoaderRuntime:
    """The parts of one loader.

    Args:
        dataset: see `AsyncDataLoader`.
        options: checked options.
        errors: where samples that failed are recorded. The loader's: what ends its workers when it is collected holds
            the core, and must not hold them.

    Attributes:
        convert: makes of a batch what is handed out; None if that is the batch itself.
        order: what comes in what order, and how far the caller has got.
        own_loop: passes are run by a thread of the loader's own, not by the caller's event loop.
        watch_globals: warn of code that draws from global generators where that is not reproducible.
    """

    def __init__(self, dataset: Any, options: LoaderOptions, errors: ErrorLog) -> None:
        self.order = EpochOrder(dataset, options)
        self.options = options = self.order.options
        self.metrics = Metrics()
        self._errors = weakref.ref(errors)
        self.closed = False
        self._context: PipelineContext | None = None
        self._cores = 1
        self._last: tuple[Any, ...] | None = None  # of the engine that was closed
        self.watch_globals = True
        self.own_loop = False
        self.tracer = None if options.trace is None else Tracer(options.trace)
        self._opening = threading.Lock()
        self._pid = os.getpid()
        self.passes: weakref.WeakSet[Any] = weakref.WeakSet()

        self._resolved = resolve(dataset)
        self._segments, self._waiting = cut(self._resolved.stages)
        self._latest: weakref.ref[Epoch] | None = None
        self._ledger: DeliveryLog | None = None
        self._gathers = (
            self._resolved.base_kind == "gather"
            and not self._resolved.stages
            and _is_default(options.batchify_fn)
        )
        self.convert = converter(options.output, bool(options.pin_memory))

    @property
    def errors(self) -> list[SampleError]:
        """Every sample that failed so far."""
        errors = self._errors()
        return [] if errors is None else errors

    # -- what kind of pass this is ---------------------------------------------------------------------------------

    @property
    def direct(self) -> bool:
        """Whether batches are made one by one, where they are asked for."""
        if self._gathers:
            return True
        options = self.options
        inline = options.workers == 0 and isinstance(options.executor, str) and not options.measures
        # What is waited for is begun ahead, also for samples that are made here.
        if self._waiting or self.order.streams:
            return False
        return inline and not getattr(self._resolved.base, "reads_ahead", False)

    @property
    def at_hand(self) -> bool:
        """Whether opening and closing wait for nothing, and so need no thread: the data are in memory."""
        return self._gathers and isinstance(self.options.executor, str) and self.tracer is None

    @property
    def drivable(self) -> bool:
        """Whether that can be done without an event loop."""
        if not self.direct:
            return False
        source = self.open().source
        return source is None or hasattr(source, "read_blocking")

    # -- parts -----------------------------------------------------------------------------------------------------

    def check_open(self) -> None:
        """Raise if the loader cannot be used any more, or not here."""
        if self.closed:
            raise LoaderClosedError("this loader is closed; make a new one")
        if not self.check_pid():
            raise LoaderClosedError("this loader belongs to the process that was forked; make a new one here")

    def check_pid(self) -> bool:
        """Whether this is the process that made the loader, not a fork of it."""
        return os.getpid() == self._pid

    def open(self) -> PipelineContext:
        """The engine; made at the first use, which reads indexes and opens files. From any thread."""
        self.check_open()
        if self._context is None:
            with self._opening:
                if self._context is None:
                    self._context = self._make_context()
        return self._context

    @property
    def is_open(self) -> bool:
        """Whether `open` has nothing left to do."""
        return self._context is not None

    def _make_context(self) -> PipelineContext:
        options, resolved = self.options, self._resolved
        base = resolved.base
        self._cores = 1 if self._gathers else available_cores()
        if self.tracer is not None:
            self.tracer.open()
        source, items = None, None
        name = getattr(base, "called", type(base).__name__)
        if self._gathers:
            items = ItemSource(
                name, self.order.length, resolved.remap, arrays=base.arrays, single=len(base.arrays) == 1
            )
        elif self.order.streams:
            items = ItemSource(name, _ENDLESS, None)
        elif resolved.base_kind == "bytes":
            source = base.open_source()
            if hasattr(source, "timeout"):
                source.timeout = options.timeout
            items = ItemSource(name, self.order.length, resolved.remap, base.spans, base.extras, base.facts)
        else:
            items = ItemSource(name, self.order.length, resolved.remap)
        try:
            memory = SlabMemory(options.memory_limit or default_memory_limit())
            executor = make_executor(options, self._gathers or self._nothing_to_run, self.watch_globals)
            if getattr(executor, "maps_files", False) and isinstance(source, LocalByteSource):
                source = MappedByteSource.over(source) or source
            if self._waiting:
                executor = AsyncMapExecutor(
                    executor, self._segments, self._waiting, self.order.seed, options.timeout
                )
            custom_collate = not _is_default(options.batchify_fn)
            context = PipelineContext(
                items,
                source,
                executor,
                memory,
                Stack() if options.batchify_fn is None or custom_collate else options.batchify_fn,
                custom_collate,
                options.on_error,
                self._prefetch(executor, source),
                self.metrics,
                stall_timeout=options.stall_timeout,
            )
            executor.open(self._program(source), memory)
        except BaseException:
            if source is not None:
                source.close()
            raise
        return context

    @property
    def _nothing_to_run(self) -> bool:
        """Whether samples come as they are, or are only waited for."""
        return self.order.streams and not any(self._segments) and _is_default(self.options.batchify_fn)

    def _prefetch(self, executor: Any, source: Any) -> int:
        options = self.options
        if options.prefetch is not None:
            return max(1, int(options.prefetch))
        # What waits long for each answer says how many samples can be on their way.
        calls = [stage.concurrency for group in self._waiting for stage in group]
        ahead: int = max(getattr(source, "samples_ahead", 0), *calls, 0)
        batch: int = options.batch_size or getattr(options.batch_sampler, "batch_size", None) or ahead or 1
        workers: int = getattr(executor, "most", executor.workers)
        return max(1, 2 * workers, -(-ahead // batch))

    def _program(self, source: Any) -> Program:
        resolved, options = self._resolved, self.options
        in_bytes = source is not None
        batchify = None if _is_default(options.batchify_fn) else options.batchify_fn
        paths = tuple(str(path) for path in getattr(source, "paths", ()) or ())
        foreign = (
            not (in_bytes or self.order.streams)
            or batchify is not None
            or not all(stage.native for stage in resolved.stages)
        )
        seed_globals = options.executor not in ("thread", "inline") and options.workers > 0
        return Program(
            decoder=resolved.base.decoder if in_bytes else None,
            dataset=None if in_bytes or self._gathers or self.order.streams else resolved.base,
            paths=paths if len(paths) <= _FEW_PATHS else (),
            stages=self._segments[0],
            later=tuple(self._segments[1:]),
            batchify=batchify,
            seed=self.order.seed,
            seed_globals=seed_globals,
            foreign=foreign and (seed_globals or self.watch_globals),
            maps=getattr(source, "maps", None),
            replaces=options.on_error == "replace",
            traced=self.tracer is not None,
        )

    # -- passes ----------------------------------------------------------------------------------------------------

    def begin(self) -> Epoch:
        """A new pass; its epoch number is given here.

        Raises:
            RuntimeError: with rollover, another pass is still under way.
        """
        self.check_open()
        latest = None if self._latest is None else self._latest()
        if latest is not None and not latest.over and self.options.last_batch == "rollover":
            raise RuntimeError(
                f"the pass over epoch {latest.number} is still under way, and with last_batch='rollover' its rest "
                "belongs to the next one: exhaust or delete that iterator first"
            )
        epoch = Epoch(self, self.order.progress.begin())
        if self.options.batch_sampler is not None:
            # Its order is drawn by the caller, who may have seeded a global generator for it.
            epoch.plans()
        self._latest = weakref.ref(epoch)
        self._ledger = epoch.delivery_log
        return epoch

    def start(self, epoch: Epoch, blocking: bool = False) -> InlinePipeline | EpochRunner:
        """Start the work of a pass. Outside of `blocking`, in the event loop that is to run it.

        Raises:
            RuntimeError: a pass of this loader is under way in another loop. Workers talk to one loop at a time.
        """
        context = self.open()
        plans = epoch.plans()
        if self.direct and not isinstance(plans, StreamPlan):
            return InlinePipeline(context, plans, blocking, epoch.trace)
        if self.options.measures:
            context.prefetch = self._prefetch(context.executor, context.source)
        pipeline = EpochRunner(context, plans, epoch.trace)
        with self._opening:
            if any(_runs_elsewhere(other, pipeline.loop) for other in self.passes):
                raise RuntimeError(
                    "this loader is in use in another event loop, or in one that has ended without ending its "
                    "tasks: make a loader for each loop, or end the other pass first"
                )
            self.passes.add(pipeline)
        return pipeline

    # -- state -----------------------------------------------------------------------------------------------------

    def load_state(self, state: dict[str, Any]) -> None:
        """See `AsyncDataLoader.load_state_dict`."""
        self.check_open()
        self.order.load(state, fixed=self._context is not None)

    def receipt(self) -> Receipt:
        """See `AsyncDataLoader.receipt`."""
        if self._ledger is None:
            place = self.order.progress.next
            return DeliveryLog(place.epoch, place.consumed, place.carry).receipt()
        return self._ledger.receipt()

    def stats(self) -> Stats:
        """See `AsyncDataLoader.stats`."""
        # In a fork another thread's lock on the memory would never be given back.
        context = self._context if self.check_pid() else None
        if context is not None:
            return self.metrics.snapshot(*self._account(context))
        return self.metrics.snapshot(*(self._last or (self.options.workers, 0, (0, 0, 0))))

    def _account(self, context: PipelineContext) -> tuple[Any, ...]:
        """What a snapshot is told besides the counters."""
        executor = context.executor
        restarts = getattr(executor, "restarts", 0)
        storage = context.source.stats() if hasattr(context.source, "stats") else None
        batchify = None if _is_default(self.options.batchify_fn) else self.options.batchify_fn
        setting = loader_config(context, batchify, self.direct, self._cores, self.own_loop)
        return executor.workers, restarts, context.memory.usage(), storage, setting

    def memory_usage(self) -> tuple[int, int, int]:
        """Bytes of slab memory in use now, at most so far, and allowed."""
        context = self._context
        return (0, 0, 0) if context is None else context.memory.usage()

    def shutdown(self) -> None:
        """End workers, close files, let go of memory. From any thread; blocking, at most a second."""
        if self.closed:
            return
        self.closed = True
        for running in list(self.passes):
            running.stop()
        context, self._context = self._context, None
        if not self.check_pid():
            return
        latest = None if self._latest is None else self._latest()
        if latest is not None:
            latest.end()
        if context is not None:
            self._last = self._account(context)
            context.executor.close()
            if context.source is not None:
                context.source.close()
            context.memory.close()
        if self.tracer is not None:
            self.tracer.close()
