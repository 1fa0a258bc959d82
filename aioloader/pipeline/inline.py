"""One epoch, one batch at a time, with no task: for the inline executor and for in-memory data.

Under an event loop it suspends for reads, and now and then for fairness; with `blocking` it never suspends, so a
blocking loader can drive it without a loop.
"""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.lowlevel

from aioloader.pipeline.batch_task import BatchTask
from aioloader.pipeline.in_memory import InMemoryBatcher

if TYPE_CHECKING:
    from collections.abc import Coroutine, Iterable

    from aioloader.foundation.types import Chunk, ChunkResult
    from aioloader.observability.trace import PassTrace
    from aioloader.pipeline.context import Delivery, PipelineContext
    from aioloader.pipeline.plan import BatchPlan

__all__ = ("InlinePipeline", "drive")

T = TypeVar("T")

_YIELD_S = 0.002


def drive(coroutine: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine that never suspends."""
    try:
        coroutine.send(None)
    except StopIteration as stop:
        value: T = stop.value
        return value
    coroutine.close()
    raise RuntimeError("a pass that must not suspend did; this is a bug of aioloader")


class InlinePipeline:
    """An epoch under way.

    Args:
        context: the parts.
        plans: the batches, in order.
        blocking: never suspend.
        trace: takes down what happens, or None.

    Attributes:
        ready: whether the next batch is there already: no, it is made when it is asked for.
    """

    ready = False

    def __init__(
        self,
        context: PipelineContext,
        plans: Iterable[BatchPlan],
        blocking: bool,
        trace: PassTrace | None = None,
    ) -> None:
        self._context = context
        self._trace = trace
        self._plans = iter(plans)
        self._plan: BatchPlan | None = None
        self._blocking = blocking
        self._yielded_at = time.monotonic()
        self._gather = None if context.items.arrays is None else InMemoryBatcher(context)

    async def next(self) -> Delivery | None:
        """The next batch in order, or None at the end of the epoch."""
        if not self._blocking and time.monotonic() - self._yielded_at > _YIELD_S:
            await anyio.lowlevel.checkpoint()
            self._yielded_at = time.monotonic()
        # A plan is held until its batch is made: a cancelled call loses nothing, the next one makes it again.
        plan = self._plan = self._plan or next(self._plans, None)
        if plan is None:
            return None
        if self._gather is not None:
            self._plan = None
            if self._trace is None:
                return self._gather.batch(plan)
            begin = time.perf_counter()
            gathered = self._gather.batch(plan)
            self._trace.gathered(begin, gathered.samples)
            return gathered
        job = BatchTask(self._context, plan, self._blocking)
        if self._trace is not None:
            self._trace.begin(plan.number, job.timeline)
        try:
            await job.plan_reads()
            self._room(job)
            if self._context.layout is None and not self._context.custom_collate:
                await job.discover(self._run)
                self._room(job)
        except BaseException:
            job.abandon()
            raise
        delivery = await job.complete(self._run)
        delivery.timeline = job.timeline
        if self._trace is not None:
            self._trace.end(plan.number, delivery.samples)
        self._plan = None
        self._yielded_at = min(self._yielded_at, time.monotonic())
        return delivery

    def stop(self) -> None:
        """Nothing is under way between two batches."""

    async def _run(self, chunks: list[Chunk]) -> ChunkResult:
        executor = self._context.executor
        result: ChunkResult = executor.run_blocking(chunks) if self._blocking else await executor.run(chunks)
        return result

    def _room(self, job: BatchTask) -> None:
        if not job.allocate():
            raise job.too_large()
