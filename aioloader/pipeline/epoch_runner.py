"""An epoch with several batches in flight: the tasks that make them, and the batches put in order.

Task life: exactly one supervisor task opens the task group and closes it, entirely inside itself. The iterator only
communicates with it: it takes deliveries and requests the end. So no group or cancel scope is ever open across a
``yield``, ``__anext__`` or ``__aenter__`` of the caller, and errors reach the caller as themselves.
"""

from __future__ import annotations

import functools
from collections import deque
from contextlib import contextmanager, nullcontext
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import anyio.lowlevel

from aioloader.errors import LoaderClosedError, single
from aioloader.foundation.concurrency import TURN_S, Notification, deferred, loop_notifier, turn
from aioloader.foundation.protocols import defines_first
from aioloader.pipeline.batch_task import BatchTask
from aioloader.pipeline.collate import Delivery
from aioloader.pipeline.memory import PATIENCE_S, wait_for_room
from aioloader.pipeline.watchdog import EpochView, ThreadWatch, is_calling, watch_lag, watch_progress

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterator
    from contextlib import AbstractContextManager

    from aioloader.observability.trace import EpochTrace
    from aioloader.pipeline.context import PipelineContext
    from aioloader.pipeline.plan import BatchPlan, PlannedBatches


T = TypeVar("T")


class ReorderError(RuntimeError):
    """Error raised when a number arrives twice, or is outside of the window: a bug of the pipeline.

    Attributes:
        number: the number.
        expected: the next number to leave.
    """

    def __init__(self, number: int, expected: int, reason: str) -> None:
        super().__init__(f"batch {number} {reason}; next to be delivered is {expected}")
        self.number = number
        self.expected = expected


class Reorder(Generic[T]):
    """Buffer of the results that arrived early.

    Args:
        window: how far a number may be ahead of the next one to leave, if they leave in order.
        in_order: they do; otherwise they leave in the order in which they arrived.

    Attributes:
        next: the lowest number that has not left.
        latest: the number that left last.
    """

    def __init__(self, window: int, *, in_order: bool = True) -> None:
        self._window = window
        self._in_order = in_order
        self._held: dict[int, T] = {}
        self._left: set[int] = set()  # numbers above `next` that have left
        self.next = 0
        self.latest = -1

    def push(self, number: int, item: T) -> None:
        """Add a result. A skipped number needs one too, or the window waits for it forever."""
        if number < self.next or number in self._held or number in self._left:
            raise ReorderError(number, self.next, "came twice")
        if self._in_order and number >= self.next + self._window:
            raise ReorderError(number, self.next, "lies outside of the window")
        self._held[number] = item

    def pop(self) -> T | None:
        """Remove and return the next result, or return None if it has not arrived yet."""
        number = self.next if self._in_order else next(iter(self._held), self.next)
        item = self._held.pop(number, None)
        if item is not None:
            self.latest = number
            self._left.add(number)
            while self.next in self._left:
                self._left.remove(self.next)
                self.next += 1
        return item

    @property
    def ready(self) -> bool:
        """Return True if a result can leave."""
        return self.next in self._held or (not self._in_order and bool(self._held))

    def first_missing(self) -> int:
        """Return the first number from `next` on that has not arrived."""
        number = self.next
        while number in self._held or number in self._left:
            number += 1
        return number

    def drop_from(self, number: int) -> None:
        """Drop the results of `number` and above."""
        for late in [held for held in self._held if held >= number]:
            del self._held[late]

    def clear(self) -> None:
        """Drop all results."""
        self._held.clear()

    def __len__(self) -> int:
        return len(self._held)


_MEMORY_POLL_S = 0.02


class PlanFeed:
    """The plans of an epoch, which are asked for one after the other.

    Args:
        plans: the batches.
        trace: records how long the source of an iterable dataset took, or None.
        order: what the caller gave that is asked for each batch, for messages: "the sampler Mine"; None: nothing.

    Attributes:
        awaits_source: the dataset's source of samples is being asked.
    """

    def __init__(self, plans: PlannedBatches, trace: EpochTrace | None, order: str | None) -> None:
        self._plans = plans
        self._trace = trace
        self._order = order
        self._asked = 0
        self.awaits_source = False
        self.aclose = plans.aclose

    @contextmanager
    def open(self, stall_timeout: float | None) -> Iterator[None]:
        """Begin the plans. What holds the event loop for longer than `stall_timeout` seconds is reported."""
        with self._watch(stall_timeout), self._plans.open():
            yield

    def _watch(self, stall_timeout: float | None) -> AbstractContextManager[None]:
        if self._order is None or stall_timeout is None:
            return nullcontext()
        code = self._plans.next.__code__
        return ThreadWatch(
            "%s has held the event loop for %.1f s, and nothing else in it can run: let it wait in a thread, or make "
            "it an asynchronous source of samples; it is at\n%s",
            self._order,
            stall_timeout,
            lambda thread: self._asked if is_calling(thread, code) else None,
        )

    async def next(self) -> BatchPlan | None:
        """Return the next plan, or None at the end."""
        self._asked += 1
        if not self._plans.waits:
            return await self._plans.next()
        self.awaits_source = True
        begin = perf_counter()
        plan = await self._plans.next()
        self.awaits_source = False
        if self._trace is not None:
            self._trace.asked_source(begin)
        return plan


class Permits:
    """Number of the batches between the start of their reads and their delivery.

    Args:
        most: how many there may be.

    Attributes:
        taken: how many there are.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self.taken = 0
        self._given_back = Notification()

    async def wait(self) -> None:
        """Wait until there may be one more."""
        while self.taken >= self.most:
            await self._given_back.wait()

    def give_back(self) -> None:
        """Take note that one was delivered."""
        self.taken -= 1
        self._given_back.set()


class FreedMemory:
    """Signal that slab memory may have been freed, for the one task that waits for it.

    Attributes:
        wanted: a task waits.
    """

    def __init__(self) -> None:
        self._freed = Notification()
        self.wanted = False

    def set(self) -> None:
        """Wake the task that waits."""
        self._freed.set()

    async def wait(self, most_s: float) -> None:
        """Wait for the signal, at most some seconds: a lease that the caller releases sends none."""
        self.wanted = True
        with anyio.move_on_after(most_s):
            await self._freed.wait()
        self.wanted = False


class BatchTasks:
    """Tasks that complete one batch after the other: a new one costs as many calls as half of the other steps."""

    def __init__(self) -> None:
        # Batches that no task has begun to complete.
        self._waiting: deque[tuple[BatchTask, Callable[[], Awaitable[None]]]] = deque()
        self._idle: list[Notification] = []  # of the tasks that wait for one
        self._closed = False

    def put(self, batch: BatchTask, complete: Callable[[], Awaitable[None]]) -> None:
        """Have a batch completed by calling `complete`. In the loop's thread, also outside of any task."""
        self._waiting.append((batch, complete))
        if self._idle:
            self._idle.pop().set()

    def close(self) -> None:
        """End the tasks once nothing is left for them."""
        self._closed = True
        for idle in self._idle:
            idle.set()

    def abandon(self) -> None:
        """Drop the batches that no task has begun to complete."""
        for batch, _ in self._waiting:
            batch.abandon()
        self._waiting.clear()

    async def run(self, tasks: anyio.abc.TaskGroup) -> None:
        """Complete batches, as the first task of the group that does, until `close`."""
        wake = Notification()
        while True:
            while self._waiting:
                if not self._idle:
                    tasks.start_soon(deferred(self.run), tasks)  # `put` cannot start any
                await self._waiting.popleft()[1]()  # an idle task must not keep a batch
            if self._closed:
                return
            self._idle.append(wake)
            await wake.wait()


class EpochRunner:
    """An epoch in progress. Made inside the event loop that runs it.

    Backpressure: one number, `prefetch`, limits the batches between the start of their reads and their delivery. The
    feeder counts batches as it begins them, in their order; the iterator counts those that it takes.

    Args:
        context: the shared parts.
        plans: the batches.
        trace: records what happens, or None.
        order: what the caller gave that is asked for each batch, for messages: "the sampler Mine"; None: nothing.

    Attributes:
        loop: the event loop that runs it.
        started: the supervisor has begun.
        ended: it has ended.
    """

    def __init__(
        self,
        context: PipelineContext,
        plans: PlannedBatches,
        trace: EpochTrace | None = None,
        order: str | None = None,
    ) -> None:
        self._context = context
        self._trace = trace
        self._plans = PlanFeed(plans, trace, order)
        self._permits = Permits(max(1, context.prefetch))
        self._reorder: Reorder[Delivery] = Reorder(self._permits.most + 1, in_order=context.in_order)
        self._arrived = Notification()
        self._memory = FreedMemory()
        self._tasks = BatchTasks()
        self._making: dict[int, BatchTask] = {}
        self._wanted = False
        self._planned: int | None = None  # number of batches, once all are planned
        self._scope: anyio.CancelScope | None = anyio.CancelScope()
        self.loop: Any = anyio.lowlevel.current_token().native_token
        self.started = False
        self.ended = anyio.Event()

    # -- the iterator's side ---------------------------------------------------------------------------------------

    async def next(self) -> Delivery | None:
        """Return the next batch in order, or None at the end of the epoch."""
        if self._reorder.ready:
            # While a caller takes what is ready without a wait, no answer would be read and no other batch begun.
            await turn(self.loop)
        while True:
            delivery = self._reorder.pop()
            if delivery is not None:
                self._wanted = False
                self._permits.give_back()
                self._context.metrics.in_flight = self._permits.taken
                if self._memory.wanted:
                    self._memory.set()
                if self._trace is not None:
                    self._trace.end(self._reorder.latest, delivery.samples)
                return delivery
            if self._planned is not None and self._reorder.next >= self._planned:
                if self.ended.is_set():
                    return None
                await self.ended.wait()  # the executor's service may still fail
                continue
            if self.ended.is_set():
                raise LoaderClosedError(
                    "the loader was closed, or its loop ended, while this epoch was under way"
                )
            self._wanted = True
            await self._arrived.wait()

    @property
    def ready(self) -> bool:
        """Return True if the next batch is ready."""
        return self._reorder.ready

    def stop(self) -> None:
        """Ask the supervisor to end the epoch. From any thread, also inside the garbage collector."""
        loop_notifier(self.loop)(self._stop)

    def _stop(self) -> None:
        if self._scope is not None:
            self._scope.cancel()

    # -- the supervisor's side -------------------------------------------------------------------------------------

    async def supervise(self) -> None:
        """Run the epoch to its end, or until `stop`. Raises nothing but cancellation.

        An error of the executor's own tasks is delivered after the batches that were made before it.
        """
        self.started = True
        context = self._context
        assert self._scope is not None
        completed = False
        try:
            with self._scope:
                try:
                    async with anyio.create_task_group() as watching:
                        watching.start_soon(deferred(watch_lag), context.metrics.lag)
                        if context.stall_timeout is not None:
                            watch = deferred(watch_progress)
                            watching.start_soon(watch, context, self._view, context.stall_timeout)
                        async with context.executor.serving(), anyio.create_task_group() as tasks:
                            tasks.start_soon(deferred(self._tasks.run), tasks)
                            await self._make(tasks)
                        watching.cancel_scope.cancel()
                except Exception as error:
                    self._fail(single(error))
                completed = True
        finally:
            self._tasks.abandon()
            self._making.clear()
            if not completed:
                self._reorder.clear()  # no task will take these; their memory is free at once
            self._scope = None
            self.ended.set()
            self._arrived.set()

    async def _make(self, tasks: anyio.abc.TaskGroup) -> None:
        """Make all batches."""
        try:
            with self._plans.open(self._context.stall_timeout):
                await self._feed(tasks)
            while self._making:
                await self._arrived.wait()
            self._tasks.close()
        finally:
            for task in self._making.values():
                task.cancel()

    async def _feed(self, tasks: anyio.abc.TaskGroup) -> None:
        """Begin the batches. Permits and memory are taken here only, in the order of the batches."""
        context, permits = self._context, self._permits
        executor = context.executor
        start = executor.start if defines_first(type(executor), "start", "run") else None
        number = 0
        try:
            yielded_at = 0.0
            while True:
                if permits.taken >= permits.most:
                    await permits.wait()
                    yielded_at = perf_counter()
                elif number and perf_counter() - yielded_at > TURN_S:  # the first batch is dispatched then
                    await anyio.lowlevel.checkpoint()
                    yielded_at = perf_counter()
                permits.taken += 1
                plan = await self._plans.next()
                if plan is None:
                    break
                task = BatchTask(context, plan, context.source, executor.run)
                self._making[number] = task
                if self._trace is not None:
                    self._trace.begin(number, task.timeline)
                await task.prepare(self._wait_for_memory, tasks)
                context.metrics.in_flight = permits.taken
                if start is None or not task.begin(
                    start, number - self._reorder.next, functools.partial(self._take, task, number)
                ):
                    self._take(task, number, None)
                number += 1
        except Exception as error:
            self._making.pop(number, None)
            # Delivered in place of the batch that could not be started, after all earlier ones.
            self._reorder.push(number, Delivery(-1, error=error))
            number += 1
        finally:
            await self._plans.aclose()
        self._planned = number
        self._arrived.set()

    def _fail(self, error: BaseException) -> None:
        """End the epoch with `error`, in place of the first batch that has not arrived."""
        number = self._reorder.first_missing()
        self._reorder.drop_from(number)
        self._reorder.push(number, Delivery(-1, error=error))
        self._planned = number + 1

    async def _wait_for_memory(self, task: BatchTask) -> None:
        """Wait for slab memory: until deliveries of this epoch, the caller, or an abandoned epoch free some."""
        context, spill = self._context, self._context.learned.spill
        task.timeline.enter("memory")

        def give_way(alone_s: float) -> bool:
            # Results without rows can do with less.
            if alone_s > PATIENCE_S and not spill.limit_to(context.memory, len(task.plan.indices)):
                raise task.too_large()
            return alone_s > PATIENCE_S

        await wait_for_room(
            task.allocate, others=lambda: self._permits.taken > 1, give_way=give_way, pause=self._await_memory
        )

    async def _await_memory(self) -> None:
        begin = perf_counter()
        await self._memory.wait(_MEMORY_POLL_S)
        self._context.metrics.memory_wait_s += perf_counter() - begin

    async def _complete(self, task: BatchTask, number: int) -> None:
        self._take(task, number, await task.complete(number - self._reorder.next))

    def _take(self, task: BatchTask, number: int, delivery: Delivery | None) -> None:
        """Take a batch; None: a task has to complete it."""
        if delivery is None:
            self._tasks.put(task, functools.partial(self._complete, task, number))
            return
        task.timeline.enter("reorder")
        delivery.timeline = task.timeline
        del self._making[number]
        self._reorder.push(number, delivery)
        if self._memory.wanted:
            self._memory.set()
        self._arrived.set()

    def _view(self) -> EpochView:
        number = self._reorder.next
        task = self._making.get(number)
        return EpochView(
            wanted=self._wanted,
            batch=number,
            stage=task.timeline.stage
            if task is not None
            else "source"
            if self._plans.awaits_source
            else "start",
            indices=() if task is None else tuple(task.plan.indices.tolist()),
            under_way={each: other.timeline.stage for each, other in self._making.items()},
            ready=len(self._reorder),
            prefetch=self._permits.most,
        )
