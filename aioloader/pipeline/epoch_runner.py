"""One epoch with several batches on their way at a time.

Task life: exactly one supervisor task opens the task group and closes it, entirely inside itself. The iterator only
talks to it: it takes deliveries and asks for the end. So no group or cancel scope is ever open across a ``yield``,
``__anext__`` or ``__aenter__`` of the caller, and errors reach the caller as themselves.
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel

from aioloader.errors import LoaderClosedError, LoaderError, single
from aioloader.foundation.concurrency import Notification, deferred, loop_notifier
from aioloader.pipeline.batch_task import BatchTask
from aioloader.pipeline.context import Delivery, PipelineContext
from aioloader.pipeline.iterable_plan import StreamPlan
from aioloader.pipeline.lag_watch import watch_lag
from aioloader.pipeline.limits import CapacityLimiter
from aioloader.pipeline.reorder import Reorder
from aioloader.pipeline.watchdog import View, Watchdog

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioloader.observability.trace import PassTrace
    from aioloader.pipeline.plan import BatchPlan

__all__ = ("EpochRunner",)

_MEMORY_POLL_S = 0.02
_MEMORY_PATIENCE_S = 2.0


def _following(plans: Iterator[BatchPlan]) -> BatchPlan | None:
    """The next plan. What a sampler raises ends no task, whatever it is; but Ctrl-C is not the sampler's."""
    try:
        return next(plans, None)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise LoaderError(f"the sampler raised {type(error).__name__}: {error}") from error


class EpochRunner:
    """An epoch under way. Made inside the event loop that runs it.

    Args:
        context: the parts.
        plans: the batches, in order.
        trace: takes down what happens, or None.

    Attributes:
        loop: the event loop that runs it.
        started: the supervisor has begun.
        ended: it has ended.
    """

    def __init__(
        self,
        context: PipelineContext,
        plans: Iterable[BatchPlan] | StreamPlan,
        trace: PassTrace | None = None,
    ) -> None:
        self._context = context
        self._trace = trace
        self._plans = plans
        self._permits = CapacityLimiter(max(1, context.prefetch))
        self._reorder: Reorder[Delivery] = Reorder(self._permits.limit + 1)
        self._arrived = Notification()
        self._memory_freed = Notification()
        self._jobs: set[BatchTask] = set()
        self._making: dict[int, BatchTask] = {}
        self._wanted = False
        self._asks = False  # the dataset's source for samples
        self._scope: anyio.CancelScope | None = None
        self._stop_asked = False
        self._fed: int | None = None
        self._notify = loop_notifier()
        self.loop: Any = anyio.lowlevel.current_token().native_token
        self._completed = False
        self.started = False
        self.ended = anyio.Event()

    # -- the iterator's side ---------------------------------------------------------------------------------------

    async def next(self) -> Delivery | None:
        """The next batch in order, or None at the end of the epoch."""
        while True:
            delivery = self._reorder.pop()
            if delivery is not None:
                self._wanted = False
                self._permits.give_back()
                self._context.metrics.in_flight = self._permits.taken
                self._memory_freed.set()
                if self._trace is not None:
                    self._trace.end(self._reorder.next - 1, delivery.samples)
                return delivery
            if self._fed is not None and self._reorder.next >= self._fed:
                if self.ended.is_set():
                    return None
                await self.ended.wait()  # the executor's service may still fail
                continue
            if self.ended.is_set() and not self._completed:
                raise LoaderClosedError(
                    "the loader was closed, or its loop ended, while this epoch was under way"
                )
            self._wanted = True
            await self._arrived.wait()

    @property
    def ready(self) -> bool:
        """Whether the next batch is there already."""
        return self._reorder.ready

    def stop(self) -> None:
        """Ask the supervisor to end the epoch. From any thread, also inside the garbage collector."""
        self._notify(self._stop)

    def _stop(self) -> None:
        self._stop_asked = True
        if self._scope is not None:
            self._scope.cancel()

    # -- the supervisor's side -------------------------------------------------------------------------------------

    async def supervise(self) -> None:
        """Run the epoch to its end, or until `stop`. Raises nothing but cancellation.

        An error of the executor's own tasks is delivered after the batches that were made before it.
        """
        self.started = True
        try:
            with anyio.CancelScope() as self._scope:
                if self._stop_asked:
                    self._scope.cancel()
                try:
                    async with anyio.create_task_group() as watching:
                        watching.start_soon(deferred(watch_lag), self._context.metrics.lag)
                        if self._context.stall_timeout is not None:
                            watchdog = Watchdog(self._context, self._look, self._context.stall_timeout)
                            watching.start_soon(deferred(watchdog.run))
                        async with self._context.executor.serving(), anyio.create_task_group() as tasks:
                            await self._feed(tasks)
                        watching.cancel_scope.cancel()
                except Exception as error:
                    self._fail(single(error))
                self._completed = True
        finally:
            for job in self._jobs:  # those whose task never began
                job.abandon()
            self._making.clear()
            if not self._completed:
                self._reorder.clear()  # nobody will take these; their memory is free at once
            self._scope = None
            self.ended.set()
            self._arrived.set()

    async def _feed(self, tasks: anyio.abc.TaskGroup) -> None:
        """Start one job per batch. Permits and memory are taken here only, in the order of the batches."""
        if isinstance(self._plans, StreamPlan):
            with self._plans.once:
                await self._feed_from(tasks, self._plans)
        else:
            await self._feed_from(tasks, None)

    async def _feed_from(self, tasks: anyio.abc.TaskGroup, stream: StreamPlan | None) -> None:
        number = 0
        try:
            plans = iter(()) if isinstance(self._plans, StreamPlan) else iter(self._plans)
            while True:
                await self._permits.take()
                plan = _following(plans) if stream is None else await self._from(stream)
                if plan is None:
                    break
                job = self._making[number] = BatchTask(self._context, plan)
                if self._trace is not None:
                    self._trace.begin(number, job.timeline)
                try:
                    await self._prepare(job)
                except BaseException:
                    job.abandon()
                    raise
                self._context.metrics.in_flight = self._permits.taken
                self._jobs.add(job)
                tasks.start_soon(deferred(self._complete), job, number)
                number += 1
        except Exception as error:
            self._making.pop(number, None)
            # It comes at the place of the batch that could not be started; all earlier ones are delivered.
            self._reorder.push(number, Delivery(-1, error=error))
            number += 1
        finally:
            if stream is not None:
                await stream.aclose()
        self._fed = number
        self._arrived.set()

    async def _from(self, stream: StreamPlan) -> BatchPlan | None:
        self._asks = True
        begin = perf_counter()
        plan = await stream.following()
        self._asks = False
        if self._trace is not None:
            self._trace.asked_source(begin)
        return plan

    def _fail(self, error: BaseException) -> None:
        """End the epoch with `error`, at the place of the first batch that is not there."""
        place = self._reorder.first_missing()
        self._reorder.drop_from(place)
        self._reorder.push(place, Delivery(-1, error=error))
        self._fed = place + 1

    async def _prepare(self, job: BatchTask) -> None:
        await job.plan_reads()
        await self._room(job)
        if self._context.layout is None and not self._context.custom_collate:
            await job.discover(self._context.executor.run)
            await self._room(job)

    async def _room(self, job: BatchTask) -> None:
        """Wait for slab memory. What frees it is this epoch's deliveries, the caller, or an epoch given up."""
        alone_since = None
        while not job.allocate():
            if job.timeline.stage != "memory":
                job.timeline.enter("memory")
            now = perf_counter()
            if self._permits.taken > 1:
                alone_since = None
            elif alone_since is None:
                alone_since = now
            elif now - alone_since > _MEMORY_PATIENCE_S:
                raise job.too_large()
            with anyio.move_on_after(_MEMORY_POLL_S):
                await self._memory_freed.wait()
            self._context.metrics.memory_wait_s += perf_counter() - now

    def _look(self) -> View:
        number = self._reorder.next
        job = self._making.get(number)
        return View(
            self._wanted,
            number,
            job.timeline.stage if job is not None else "source" if self._asks else "start",
            () if job is None else tuple(job.plan.indices.tolist()),
            {each: other.timeline.stage for each, other in self._making.items()},
            len(self._reorder),
            self._permits.limit,
        )

    async def _complete(self, job: BatchTask, number: int) -> None:
        self._jobs.discard(job)
        delivery = await job.complete(self._context.executor.run)
        job.timeline.enter("ready")
        delivery.timeline = job.timeline
        del self._making[number]
        self._reorder.push(number, delivery)
        self._memory_freed.set()
        self._arrived.set()
