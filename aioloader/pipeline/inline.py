"""An epoch that makes one batch at a time, without tasks: for the inline executor and for in-memory data.

Under an event loop it suspends for reads, and now and then for fairness. With `blocking` it never suspends, so that a
blocking loader can run it without a loop.
"""

from __future__ import annotations

import time
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.lowlevel
import numpy as np

from aioloader.abc import ByteSource
from aioloader.foundation.concurrency import TURN_S
from aioloader.pipeline.batch_task import BatchTask
from aioloader.pipeline.collate import Delivery
from aioloader.pipeline.memory import may_lease
from aioloader.pipeline.plan import BatchPlan, base_indices

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aioloader.abc import Executor
    from aioloader.foundation.types import Array, Chunk, ChunkResult, IntArray, ReadPlan, Spans
    from aioloader.observability.trace import EpochTrace
    from aioloader.pipeline.context import PipelineContext
    from aioloader.pipeline.dispatch import Run

T = TypeVar("T")

# glibc maps larger blocks of memory again for each allocation, and filling new pages is what slabs avoid.
_SMALL = 128 * 1024


class _Blocking(ByteSource):
    """Byte source and executor whose coroutines block and never suspend."""

    def __init__(self, source: ByteSource | None, executor: Executor) -> None:
        self._source = source
        self._executor = executor

    async def plan(self, spans: Spans) -> ReadPlan:
        assert self._source is not None
        return self._source.plan_blocking(spans)

    async def read(self, plan: ReadPlan, out: memoryview) -> list[tuple[int, BaseException]]:
        assert self._source is not None
        return self._source.read_blocking(plan, out)

    async def run(self, chunks: Sequence[Chunk]) -> ChunkResult:
        return self._executor.run_blocking(chunks)

    def close(self) -> None:
        """Do nothing: the loader closes both."""


class InlinePipeline:
    """One epoch.

    Args:
        context: the shared parts.
        plans: the batches, in order.
        blocking: never suspend.
        trace: records what happens, or None.

    Attributes:
        ready: always False: a batch is made when the caller asks for it.
        supervise: None: it has no tasks.
    """

    ready = False
    supervise: None = None

    def __init__(
        self,
        context: PipelineContext,
        plans: Iterable[BatchPlan],
        blocking: bool = False,
        trace: EpochTrace | None = None,
    ) -> None:
        self._context = context
        self._trace = trace
        self._plans = iter(plans)
        self._plan: BatchPlan | None = None
        self._blocking = blocking
        self._yielded_at = time.monotonic()
        self._in_memory: InMemoryBatcher | PayloadBatcher | None = None
        if context.items.arrays is not None:
            self._in_memory = InMemoryBatcher(context)
        elif context.payloads is not None:
            self._in_memory = PayloadBatcher(context, context.payloads)
        self._source: ByteSource | None = context.source
        self._run: Run = context.executor.run
        if blocking and context.items.arrays is None:
            parts = _Blocking(context.source, context.executor)
            self._source = None if context.source is None else parts
            self._run = parts.run

    async def next(self) -> Delivery | None:
        """Return the next batch in order, or None at the end of the epoch."""
        if not self._blocking and time.monotonic() - self._yielded_at > TURN_S:
            await anyio.lowlevel.checkpoint()
            self._yielded_at = time.monotonic()
        # A plan is kept until its batch is made: a cancelled call loses nothing, the next call makes it again.
        plan = self._plan = self._plan or next(self._plans, None)
        if plan is None:
            return None
        try:
            if self._in_memory is not None:
                begin = 0.0 if self._trace is None else perf_counter()
                gathered = self._in_memory.batch(plan)
                if gathered is not None:
                    self._plan = None
                    if self._trace is not None:
                        self._trace.gathered(begin, gathered.samples)
                    return gathered
            task = BatchTask(self._context, plan, self._source, self._run)
            if self._trace is not None:
                self._trace.begin(plan.number, task.timeline)
            await task.prepare(_no_memory)
            delivery = await task.complete()
        except Exception:
            self._plan = None  # it would fail again for ever
            raise
        delivery.timeline = task.timeline
        if self._trace is not None:
            self._trace.end(plan.number, delivery.samples)
        self._plan = None
        return delivery

    def get(self) -> Delivery | None:
        """Return the next batch, as `next` does; only of an epoch that never suspends."""
        coroutine = self.next()
        try:
            coroutine.send(None)
        except StopIteration as stop:
            delivery: Delivery | None = stop.value
            return delivery
        coroutine.close()
        raise RuntimeError("an epoch that must not suspend did; this is a bug of aioloader")

    def stop(self) -> None:
        """Do nothing: between two batches nothing is in progress."""


async def _no_memory(task: BatchTask) -> None:
    """Raise, because no other batch of this epoch could free any."""
    raise task.too_large()


class InMemoryBatcher:
    """Maker of batches from arrays in memory: one gather per array, straight into leased memory. It never waits.

    Args:
        context: the shared parts; its items have arrays.
    """

    def __init__(self, context: PipelineContext) -> None:
        assert context.items.arrays is not None
        self._context = context
        self._single = context.items.single
        self._arrays = tuple(context.items.arrays)
        self._checked: Any = None
        self._rows = -1
        self._parts: list[tuple[int, tuple[int, ...], np.dtype[Any]]] = []
        self._nbytes = 0

    def batch(self, plan: BatchPlan) -> Delivery:
        """Return the batch of a plan.

        Raises:
            IndexError: the sampler returned an index outside of the data.
        """
        begin = perf_counter()
        context = self._context
        indices = self._base(plan.indices)
        n = len(indices)
        if n != self._rows:
            self._lay_out(n)
        # Beyond what the caller may keep, batches are ordinary arrays, and so are small ones: the C library's allocator
        # hands the memory of the last one out again, which costs less than a lease.
        slab = None
        if self._nbytes > _SMALL and may_lease(context.memory, self._nbytes, context.learned.largest_batch):
            slab = context.memory.allocate(self._nbytes, lasting=True)
        roots: list[Array]
        if slab is None:
            roots = [np.empty(shape, dtype) for _, shape, dtype in self._parts]
        else:
            roots = context.memory.lend(slab, self._parts)
        for array, root in zip(self._arrays, roots, strict=True):
            array.take(indices, 0, root, "clip")
        context.metrics.work.collate_s += perf_counter() - begin
        batch = roots[0] if self._single else tuple(roots)
        return Delivery(plan.consumed, batch, n)

    def _base(self, indices: IntArray) -> IntArray:
        items = self._context.items
        if items.index_map is not None or indices.base is None:
            return base_indices(items, indices)[1]
        # Plans are parts of longer blocks of indices: each block is checked once.
        block: Any = indices.base
        if block is not self._checked:
            plain = isinstance(block, np.ndarray) and block.ndim == 1
            if not plain or not 0 <= block.min() <= block.max() < items.length:
                return base_indices(items, indices)[1]
            self._checked = block
        return indices

    def _lay_out(self, rows: int) -> None:
        self._rows = rows
        self._parts = []
        place = 0
        for array in self._arrays:
            self._parts.append((place, (rows, *array.shape[1:]), array.dtype))
            place += -(-rows * array[:1].nbytes // 64) * 64
        self._nbytes = place


class PayloadBatcher:
    """Maker of batches of records that need no work: lists of payloads, copied from memory many at a time.

    Args:
        context: the shared parts.
        payloads: see `PipelineContext`.
    """

    def __init__(self, context: PipelineContext, payloads: Callable[[Spans], list[bytes] | None]) -> None:
        self._context = context
        self._payloads = payloads

    def batch(self, plan: BatchPlan) -> Delivery | None:
        """Return the batch of a plan; None if it is to be read, because a record is damaged, or not in memory.

        Raises:
            IndexError: the sampler returned an index outside of the data.
        """
        begin = perf_counter()
        items, metrics = self._context.items, self._context.metrics
        assert items.spans is not None
        spans = items.spans(base_indices(items, plan.indices)[1])
        payloads = self._payloads(spans)
        if payloads is None:
            return None
        metrics.bytes_read += int(spans.length.sum())
        metrics.work.collate_s += perf_counter() - begin
        return Delivery(plan.consumed, payloads, len(payloads))
