"""Parts of one loader behind its front end: the one place that chooses concrete parts.

The runtime never refers to the loader that owns it, so the loader can be collected, and then closes the runtime.
"""

from __future__ import annotations

import asyncio
import os
import threading
import weakref
from dataclasses import replace
from numbers import Integral
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from aioloader.abc import (
    ByteSource,
    Executor,
    FileMaps,
    PartialReads,
    Program,
)
from aioloader.batchify.allocation import AsList
from aioloader.batchify.stack import Stack
from aioloader.datasets.joined import JoinedDecoder
from aioloader.datasets.resolve import resolve
from aioloader.errors import LoaderClosedError, SampleError
from aioloader.executors.auto import AutoExecutor
from aioloader.executors.inline import InlineExecutor
from aioloader.executors.owners import claim
from aioloader.executors.process.executor import ProcessExecutor
from aioloader.executors.shared_memory import SlabMemory, default_memory_limit
from aioloader.executors.thread import ThreadExecutor
from aioloader.foundation.host_limits import available_cores
from aioloader.foundation.protocols import has_attribute
from aioloader.foundation.threads import Threads
from aioloader.loader.epoch_iterator import Epoch
from aioloader.loader.opening import announced, limits, open_blocking, open_in_thread, reported
from aioloader.loader.options import AUTO, LoaderOptions
from aioloader.loader.outputs import make_converter
from aioloader.loader.planner import EpochPlanner
from aioloader.metrics import LoaderConfig, Metrics, Stats
from aioloader.observability.trace import Tracer
from aioloader.pipeline.async_map import AsyncMapExecutor, cut
from aioloader.pipeline.context import ItemSource, PipelineContext
from aioloader.pipeline.epoch_runner import EpochRunner
from aioloader.pipeline.inline import InlinePipeline
from aioloader.pipeline.iterable_plan import IterablePlan

if TYPE_CHECKING:
    from aioloader.foundation.error_log import ErrorLog
    from aioloader.loader.checkpoint import EpochCursor
    from aioloader.receipts import Receipt

_FEW_PATHS = 64
_ENDLESS = 2**62


def _is_default(batchify: Any) -> bool:
    """Return True if samples are written to rows, and `batchify` is called only for those that do not fit."""
    if batchify is None or type(batchify) is Stack:
        return True
    return has_attribute(batchify, "by_rows") and batchify.by_rows is True


def _runs_elsewhere(other: EpochRunner, loop: object) -> bool:
    """Return True if an epoch belongs to another event loop, and has begun there or may still begin."""
    if other.loop is loop or other.ended.is_set():
        return False
    return other.started or (isinstance(other.loop, asyncio.AbstractEventLoop) and other.loop.is_running())


class LoaderRuntime:
    """The parts of one loader.

    Args:
        dataset: see `AsyncDataLoader`.
        options: checked options.
        errors: the loader's list of failed samples. Referred to weakly: the function that ends the workers of a
            collected loader holds the runtime, and must not hold the errors.

    Attributes:
        convert: converts a batch before it is delivered; None if it is delivered as it is.
        planner: makes the plans of the epochs, and keeps the progress of the caller.
        own_loop: a thread of the loader runs the epochs, not the caller's event loop.
    """

    # The dataset is the caller's, of any class.
    def __init__(self, dataset: Any, options: LoaderOptions, errors: ErrorLog) -> None:
        self.planner = EpochPlanner(dataset, options)
        self.options = options = self.planner.options
        self.metrics = Metrics()
        self._errors = weakref.ref(errors)
        self.closed = False
        self._context: PipelineContext | None = None
        self._workers: Executor | None = None  # the executor, without async transforms
        self._cores = 1
        self._final_stats: Stats | None = None  # of the parts that were closed
        self.own_loop = False
        self.tracer = None if options.trace is None else Tracer(options.trace)
        self._opening = threading.Lock()
        self._parts = (
            threading.RLock()
        )  # the garbage collector may close the loader in the thread that has it
        self._pid = os.getpid()
        self.running: weakref.WeakSet[EpochRunner] = weakref.WeakSet()

        self._resolved = resolve(dataset)
        self._segments, self._waiting = cut(self._resolved.stages)
        self._latest: weakref.ref[Epoch] | None = None
        self._cursor: EpochCursor | None = None
        self._batchify = None if _is_default(options.batchify_fn) else options.batchify_fn
        self._gathers = (
            self._resolved.base_kind == "gather" and not self._resolved.stages and self._batchify is None
        )
        self.convert = make_converter(options.output, bool(options.pin_memory), options.device)

    def _recorded_errors(self) -> list[SampleError]:
        errors = self._errors()
        return [] if errors is None else errors

    # -- what kind of epoch this is --------------------------------------------------------------------------------

    @property
    def inline(self) -> bool:
        """Return True if batches are made one at a time, when the caller asks for them."""
        if self._gathers:
            return True
        options = self.options
        # Async transforms are begun ahead, also for samples that are made inline.
        if self._waiting or self.planner.streams or self._resolved.reads_ahead:
            return False
        return options.workers == 0 and options.own is None and not options.measures

    @property
    def in_memory(self) -> bool:
        """Return True if opening and closing do not block, and so need no thread: the data are in memory."""
        return self._gathers and self.options.own is None and self.tracer is None

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
        return os.getpid() == self._pid

    def open(self) -> PipelineContext:
        """Return the parts that all epochs share. The first call reads indexes and opens files. From any thread."""
        self.check_open()
        context = self._context
        if context is None:
            with self._opening:
                context = self._context
                if context is None:
                    stall_timeout = None if self.in_memory else self.options.stall_timeout
                    with limits(self.options.timeout), reported(self._resolved.name, stall_timeout):
                        context = self._make_context()
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
        with self._parts:
            if not self.closed:
                self._context = context
                return
        self._close_parts(context)
        raise LoaderClosedError("this loader was closed while it was being opened; make a new one")

    @property
    def is_open(self) -> bool:
        """Return True if `open` has nothing left to do."""
        return self._context is not None

    def _make_context(self) -> PipelineContext:
        options = self.options
        self._cores = 1 if self._gathers else available_cores()
        if self.tracer is not None:
            self.tracer.open()
        items, source = self._open_dataset()
        memory: SlabMemory | None = None
        try:
            memory = SlabMemory(options.memory_limit or default_memory_limit())
            executor = workers = self._make_executor()
            maps = None
            if workers.maps_files and source is not None:
                mapped = source.mapped()
                if mapped is not None:
                    source, maps = mapped, mapped.maps
            if self._waiting:
                executor = AsyncMapExecutor(
                    workers, self._segments, self._waiting, seed=self.planner.seed, timeout=options.timeout
                )
            default = options.batchify_fn if self._batchify is None else None
            context = PipelineContext(
                items=items,
                source=source,
                executor=executor,
                memory=memory,
                collate=default or Stack(),
                custom_collate=self._batchify is not None,
                on_error=options.on_error,
                prefetch=self._prefetch(workers, source),
                in_order=options.in_order,
                metrics=self.metrics,
                threads=None if self.inline else Threads(1, "aioloader-collate"),
                stall_timeout=options.stall_timeout,
            )
            executor.open(self._program(source, maps), memory)
        except BaseException:
            if source is not None:
                source.close()
            if items.partial is not None:
                items.partial.close()
            if memory is not None:
                memory.close()
            raise
        self._workers = workers
        return context

    def _make_executor(self) -> Executor:
        options = self.options
        if options.own is not None:
            return claim(options.own, self)
        if options.workers == 0 or self._gathers or self._nothing_to_run:
            return InlineExecutor()
        if options.measures:
            kinds = ("thread", "process", "inline") if options.kind == AUTO else (options.kind,)
            fixed = options.num_workers is not None and options.num_workers != AUTO
            return AutoExecutor(
                kinds, options.workers, options.timeout, fixed=fixed, watch=options.watch_globals
            )
        if options.kind == "thread":
            return ThreadExecutor(options.workers, options.timeout)
        return ProcessExecutor(options.workers, options.timeout, pool=options.pool)

    def _open_dataset(self) -> tuple[ItemSource, ByteSource | None]:
        base = self._resolved.base
        items = ItemSource(
            name=self._resolved.name,
            length=_ENDLESS if self.planner.streams else self.planner.length,
            index_map=self._resolved.remap,
        )
        if self._gathers:
            return replace(items, arrays=base.arrays, single=len(base.arrays) == 1), None
        if self._resolved.base_kind != "bytes":
            own = self._resolved.base_kind == "foreign"
            return replace(items, own_getitem=own, location=self._resolved.location), None
        source = self._resolved.open_source()
        source.set_timeout(self.options.timeout)
        items = replace(items, spans=base.spans, extras=base.extras, location=base.location)
        return replace(items, partial=self._partial_reads(source)), source

    def _partial_reads(self, source: ByteSource) -> PartialReads | None:
        """Return the finder of the parts of items that samples need, or None."""
        base = self._resolved.base
        # An executor of the caller's may do without the fused decoder, which alone understands parts.
        if self.options.own is not None:
            return None
        # Called for a source that reads whole items too, such as a cache: it fetches crop indexes, which decoders use.
        partial: PartialReads | None = base.partial_reads(self._segments[0], self.planner.seed)
        if partial is None or source.reads_parts:
            return partial
        partial.close()
        return None

    @property
    def _nothing_to_run(self) -> bool:
        """Return True if no sample needs the executor: samples are delivered as they come, or only awaited."""
        return self.planner.streams and not any(self._segments) and self._batchify is None

    def _prefetch(self, executor: Executor, source: ByteSource | None) -> int:
        options = self.options
        if options.prefetch is not None:
            return max(1, int(options.prefetch))
        # A part with a long latency determines how many samples must be in flight.
        ahead = max((stage.concurrency for group in self._waiting for stage in group), default=0)
        if source is not None:
            ahead = max(ahead, source.samples_ahead)
        batch_sampler = options.batch_sampler
        # A batch sampler is the caller's object, and a list of batches has no size.
        size = getattr(batch_sampler, "batch_size", None)
        batch = options.batch_size or (int(size) if isinstance(size, Integral) else None) or ahead or 1
        return max(1, 2 * executor.most, -(-ahead // batch))

    def _program(self, source: ByteSource | None, maps: FileMaps | None) -> Program:
        resolved, options = self._resolved, self.options
        in_bytes = source is not None
        paths = () if source is None else tuple(map(str, source.paths))
        decoder = resolved.decoder if in_bytes else None
        lists = type(self._batchify) is AsList
        foreign = (
            not (in_bytes or self.planner.streams)
            or (self._batchify is not None and not lists)
            or not all(stage.native for stage in resolved.stages)
            or (isinstance(decoder, JoinedDecoder) and decoder.foreign)
        )
        seed_globals = options.kind not in ("thread", "inline") and options.workers > 0
        return Program(
            decoder=decoder,
            dataset=None if in_bytes or self._gathers or self.planner.streams else resolved.base,
            paths=paths if len(paths) <= _FEW_PATHS else (),
            stages=self._segments[0],
            later=tuple(self._segments[1:]),
            batchify=self._batchify,
            seed=self.planner.seed,
            seed_globals=seed_globals,
            foreign=foreign and (seed_globals or options.watch_globals),
            maps=maps,
            replaces=options.on_error == "replace",
            raises=options.on_error == "raise",
            lists=lists,
            traced=self.tracer is not None,
        )

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
            options=self.options,
            metrics=self.metrics,
            errors=self._recorded_errors,
            convert=self.convert,
            tracer=self.tracer,
            memory_usage=self.memory_usage,
        )
        if self.options.batch_sampler is not None:
            # The caller may have seeded a global generator that its order is drawn from.
            epoch.plans()
        self._latest = weakref.ref(epoch)
        self._cursor = epoch.cursor
        return epoch

    def start(self, epoch: Epoch, blocking: bool = False) -> InlinePipeline | EpochRunner:
        """Start the work of an epoch. Without `blocking`, call it in the event loop that will run the epoch.

        Raises:
            RuntimeError: an epoch of this loader is under way in another loop. Workers serve one loop at a time.
        """
        context = self.open()
        plans = epoch.plans()
        if self.inline and not isinstance(plans, IterablePlan):
            return InlinePipeline(context, plans, blocking, epoch.trace)
        if self.options.measures and self._workers is not None:
            context.prefetch = self._prefetch(self._workers, context.source)
        if epoch.computed and not isinstance(plans, IterablePlan):
            plans = announced(context, plans)
        pipeline = EpochRunner(context, plans, epoch.trace, self._order(epoch))
        with self._opening:
            if any(_runs_elsewhere(other, pipeline.loop) for other in self.running):
                raise RuntimeError(
                    "this loader is in use in another event loop, or in one that has ended without ending its "
                    "tasks: make a loader for each loop, or end the other epoch first"
                )
            self.running.add(pipeline)
        return pipeline

    def _order(self, epoch: Epoch) -> str | None:
        """Return the name of the caller's code that is asked for the samples of each batch, or None."""
        options = self.options
        if self.planner.streams:
            return f"the source of {type(self._resolved.base).__name__}"
        if epoch.computed:
            return None
        if options.batch_sampler is not None:
            return f"the batch sampler {type(options.batch_sampler).__name__}"
        return None if options.sampler is None else f"the sampler {type(options.sampler).__name__}"

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
        if context is not None and self._workers is not None:
            return self._snapshot(context, self._workers)
        return self._final_stats or self.metrics.snapshot(self.options.workers, 0, (0, 0, 0))

    def _snapshot(self, context: PipelineContext, workers: Executor) -> Stats:
        source, batchify = context.source, self._batchify
        return self.metrics.snapshot(
            workers.workers,
            workers.restarts,
            context.memory.usage(),
            storage=None if source is None else source.stats(),
            config=LoaderConfig(
                executor=workers.kind,
                cores=self._cores,
                prefetch=1 if self.inline else context.prefetch,
                foreign=source is None and context.items.arrays is None,
                batchify=None
                if batchify is None
                else str(getattr(batchify, "__name__", type(batchify).__name__)),
                own_loop=self.own_loop,
                tuning=workers.tuning,
                concurrency=MappingProxyType(dict(context.executor.concurrency)),
            ),
        )

    def memory_usage(self) -> tuple[int, int, int]:
        """Return the bytes of slab memory in use now, their maximum so far, and the limit."""
        context = self._context
        return (0, 0, 0) if context is None else context.memory.usage()

    def shutdown(self) -> None:
        """End workers, close files, release memory. From any thread; blocks for a second at most."""
        with self._parts:
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
        if context is not None and self._workers is not None:
            self._final_stats = self._snapshot(context, self._workers)
            self._close_parts(context)
        if self.tracer is not None:
            self.tracer.close()

    def _close_parts(self, context: PipelineContext) -> None:
        context.executor.close()
        if context.threads is not None:
            context.threads.close()
        if context.source is not None:
            context.source.close()
        if context.items.partial is not None:
            context.items.partial.close()
        context.memory.close()
