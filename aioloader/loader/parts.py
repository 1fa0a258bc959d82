"""The parts of one loader: the one place that chooses concrete ones."""

from __future__ import annotations

from dataclasses import replace
from numbers import Integral
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from aioloader.abc import ByteSource, Executor, FileMaps, PartialReads, Program
from aioloader.batchify.stack import AsList, Stack
from aioloader.datasets.resolve import resolve
from aioloader.executors.auto import AutoExecutor
from aioloader.executors.factory import KINDS, make_executor
from aioloader.executors.runner import bulk_method
from aioloader.executors.shared_memory import SlabMemory
from aioloader.foundation.host_limits import available_cores, available_memory
from aioloader.foundation.native import absence
from aioloader.foundation.protocols import has_attribute
from aioloader.foundation.threads import Threads
from aioloader.loader.options import AUTO
from aioloader.metrics import LoaderConfig
from aioloader.pipeline.async_map import AsyncMapExecutor, cut
from aioloader.pipeline.context import ItemSource, PipelineContext

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.foundation.types import Spans
    from aioloader.loader.planner import EpochPlanner
    from aioloader.metrics import Metrics


_FEW_PATHS = 64
_ENDLESS = 2**62


def _is_default(batchify: Any) -> bool:
    """Return True if samples are written to rows, and `batchify` is called only for those that do not fit."""
    if batchify is None or type(batchify) is Stack:
        return True
    return has_attribute(batchify, "by_rows") and batchify.by_rows is True


class LoaderParts:
    """The parts that a dataset and the options of its loader need.

    Args:
        dataset: see `AsyncDataLoader`.
        planner: the planner of the loader, which has its options.
        metrics: the loader's counters.
        traced: the loader writes a trace.

    Attributes:
        workers: the executor without async transforms, from `make` on.
        own_loop: a thread of the loader runs the epochs, not the caller's event loop.
    """

    own_loop = False
    workers: Executor

    # The dataset is the caller's, of any class.
    def __init__(self, dataset: Any, planner: EpochPlanner, metrics: Metrics, *, traced: bool) -> None:
        self._planner = planner
        self._options = options = planner.options
        self._metrics = metrics
        self._traced = traced
        self._cores = 1
        self._resolved = resolve(dataset)
        self._segments, self._waiting = cut(self._resolved.stages)
        self._batchify = None if _is_default(options.batchify_fn) else options.batchify_fn
        self._gathers = (
            self._resolved.base_kind == "gather" and not self._resolved.stages and self._batchify is None
        )

    @property
    def name(self) -> str:
        """Return the name of the dataset's class."""
        return self._resolved.name

    @property
    def inline(self) -> bool:
        """Return True if batches are made one at a time, when the caller asks for them."""
        if self._gathers:
            return True
        options = self._options
        # Async transforms are begun ahead, also for samples that are made inline.
        if self._waiting or self._planner.streams or self._resolved.reads_ahead:
            return False
        return options.workers == 0 and options.own is None and not options.measures

    @property
    def in_memory(self) -> bool:
        """Return True if opening and closing do not block, and so need no thread: the data are in memory."""
        return self._gathers and self._options.own is None and not self._traced

    @property
    def order(self) -> str | None:
        """Return the name of the caller's code that is asked for the samples of each batch, or None."""
        options = self._options
        if self._planner.streams:
            return f"the source of {type(self._resolved.base).__name__}"
        if options.batch_sampler is not None:
            return f"the batch sampler {type(options.batch_sampler).__name__}"
        return None if options.sampler is None else f"the sampler {type(options.sampler).__name__}"

    def make(self, owner: object) -> PipelineContext:
        """Make the parts that all epochs share: read indexes, open files, start workers.

        Args:
            owner: an executor of the caller's belongs to it.
        """
        options = self._options
        self._cores = 1 if self._gathers else available_cores()
        if not self.in_memory:
            self._metrics.available_memory_bytes = available_memory()
        executor = self.workers = self._make_executor(owner)
        try:
            if self._resolved.reads_ahead:
                executor.prepare()
            items, source = self._open_dataset()
        except BaseException:
            executor.close()
            raise
        memory: SlabMemory | None = None
        try:
            memory = SlabMemory(options.memory_limit, shared=executor.shares_memory)
            maps = None
            if self.workers.maps_files and source is not None:
                mapped = source.mapped()
                if mapped is not None:
                    source, maps = mapped, mapped.maps
            if self._waiting:
                executor = AsyncMapExecutor(
                    self.workers,
                    self._segments,
                    self._waiting,
                    seed=self._planner.seed,
                    timeout=options.timeout,
                )
            default = options.batchify_fn if self._batchify is None else None
            program = self._program(source, maps)
            context = PipelineContext(
                items=items,
                source=source,
                executor=executor,
                memory=memory,
                collate=default or Stack(),
                custom_collate=self._batchify is not None,
                on_error=options.on_error,
                delivers_empty=self._planner.exact,
                prefetch=self.prefetch(source),
                in_order=options.in_order,
                metrics=self._metrics,
                threads=None if self.inline else Threads(1, "aioloader-collate"),
                stall_timeout=options.stall_timeout,
                payloads=self._payloads(source, program, memory),
            )
            executor.open(program, memory)
        except BaseException:
            if source is not None:
                source.close()
            if items.partial is not None:
                items.partial.close()
            if items.search is not None:
                items.search.close()
            if memory is not None:
                memory.close()
            raise
        return context

    def _make_executor(self, owner: object) -> Executor:
        options = self._options
        given: str | Executor = options.kind
        if options.own is not None:
            given = options.own
        elif options.workers == 0 or self._gathers or self._nothing_to_run:
            given = "inline"
        elif options.measures:
            kind = "process" if options.kind == "fork" else options.kind
            fixed = options.num_workers is not None and options.num_workers != AUTO
            return AutoExecutor(
                KINDS if kind == AUTO else (kind,),
                options.workers,
                options.timeout,
                processes=options.kind,
                fixed=fixed,
                watch=options.watch_globals,
            )
        return make_executor(given, options.workers, options.timeout, owner=owner, pool=options.pool)

    def _open_dataset(self) -> tuple[ItemSource, ByteSource | None]:
        base, search = self._resolved.base, self._planner.begin_search()
        endless = self._planner.streams or search is not None
        items = ItemSource(
            name=self._resolved.name,
            length=_ENDLESS if endless else self._planner.length,
            index_limit=0
            if endless or self._options.batch_sampler is not None
            else self._planner.index_limit,
            index_map=self._resolved.remap,
            search=search,
        )
        if self._gathers:
            return replace(items, arrays=base.arrays, single=len(base.arrays) == 1), None
        if self._resolved.base_kind != "bytes":
            own = self._resolved.base_kind == "foreign"
            return replace(items, own_getitem=own, location=self._resolved.location), None
        source = self._resolved.open_source()
        source.set_timeout(self._options.timeout)
        items = replace(items, spans=base.spans, whole_spans=base.whole_spans, extras=base.extras)
        items = replace(items, location=base.location)
        return replace(items, partial=self._partial_reads(source)), source

    def _partial_reads(self, source: ByteSource) -> PartialReads | None:
        """Return the finder of the parts of items that samples need, or None."""
        base = self._resolved.base
        # An executor of the caller's may do without the fused decoder, which alone understands parts.
        if self._options.own is not None:
            return None
        # Called for a source that reads whole items too, such as a cache: it fetches crop indexes, which decoders use.
        partial: PartialReads | None = base.partial_reads(self._segments[0], self._planner.seed)
        if partial is None or source.reads_parts:
            return partial
        partial.close()
        return None

    def _payloads(
        self, source: ByteSource | None, program: Program, memory: SlabMemory
    ) -> Callable[[Spans], list[bytes] | None] | None:
        """Return the function of `PipelineContext.payloads`, or None."""
        if source is None or program.decoder is None or not self.inline:
            return None
        listed = self._batchify is None or program.lists
        return source.copied(memory, program.decoder) if listed and bulk_method(program) else None

    @property
    def _nothing_to_run(self) -> bool:
        """Return True if no sample needs the executor: samples are delivered as they come, or only awaited."""
        return self._planner.streams and not any(self._segments) and self._batchify is None

    def prefetch(self, source: ByteSource | None) -> int:
        """Return how many batches are in flight at most."""
        options = self._options
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
        return max(1, 2 * self.workers.most, -(-ahead // batch))

    def _program(self, source: ByteSource | None, maps: FileMaps | None) -> Program:
        resolved, options = self._resolved, self._options
        in_bytes = source is not None
        paths = () if source is None else tuple(map(str, source.paths))
        decoder = resolved.decoder if in_bytes else None
        lists = type(self._batchify) is AsList
        foreign = (
            not (in_bytes or self._planner.streams)
            or (self._batchify is not None and not lists)
            or not all(stage.native for stage in resolved.stages)
            or (decoder is not None and decoder.foreign)
        )
        seed_globals = options.kind not in ("thread", "inline") and options.workers > 0
        return Program(
            decoder=decoder,
            dataset=None if in_bytes or self._gathers or self._planner.streams else resolved.base,
            paths=paths if len(paths) <= _FEW_PATHS else (),
            stages=self._segments[0],
            later=tuple(self._segments[1:]),
            seeds=resolved.seeds,
            batchify=self._batchify,
            seed=self._planner.seed,
            seed_globals=seed_globals,
            foreign=foreign and (seed_globals or options.watch_globals),
            maps=maps,
            replaces=options.on_error == "replace",
            raises=options.on_error == "raise",
            lists=lists,
            traced=self._traced,
        )

    def config(self, context: PipelineContext) -> LoaderConfig:
        """Return what was chosen, for statistics."""
        workers, batchify = self.workers, self._batchify
        return LoaderConfig(
            executor=workers.kind,
            cores=self._cores,
            prefetch=1 if self.inline else context.prefetch,
            foreign=context.source is None and context.items.arrays is None,
            batchify=None
            if batchify is None
            else str(getattr(batchify, "__name__", type(batchify).__name__)),
            own_loop=self.own_loop,
            dataset_samples=None
            if self._planner.streams or context.items.search is not None
            else self._planner.length,
            ranks=self._options.rank_and_world[1],
            tuning=workers.tuning,
            native_absence=absence,
            concurrency=MappingProxyType(dict(context.executor.concurrency)),
        )


def close_parts(context: PipelineContext) -> None:
    """End workers, close files, release memory."""
    context.executor.close()
    if context.threads is not None:
        context.threads.close()
    if context.source is not None:
        context.source.close()
    if context.items.partial is not None:
        context.items.partial.close()
    if context.items.search is not None:
        context.items.search.close()
    context.memory.close()
