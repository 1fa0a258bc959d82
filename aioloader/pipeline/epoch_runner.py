"""An epoch with several batches in flight, and the steps of each batch: plan, fetch, dispatch, work, collate.

An epoch with one batch at a time (`aioloader.pipeline.inline`) takes the same steps; it differs in how it waits for
memory, and in what `source` and `run` of a `BatchTask` are.

Task life: exactly one supervisor task opens the task group and closes it, entirely inside itself. The iterator only
communicates with it: it takes deliveries and requests the end. So no group or cancel scope is ever open across a
``yield``, ``__anext__`` or ``__aenter__`` of the caller, and errors reach the caller as themselves.

Thread that notices a sampler or a source that holds the event loop.

Nothing in the loop could report it: the watchdog waits for the same loop.

The stage "reorder": results arrive in any order and leave in the order of their numbers, or as they come (pure).
"""

from __future__ import annotations

import functools
import logging
import sys
import threading
from contextlib import nullcontext, suppress
from dataclasses import replace
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import anyio.lowlevel
import numpy as np

from aioloader.errors import BatchMemoryError, LoaderClosedError, LoaderError, ThreadStartError, single
from aioloader.foundation.concurrency import Notification, RefCount, deferred, loop_notifier
from aioloader.foundation.error_log import add_note, printable
from aioloader.foundation.replacement import fallback_indices
from aioloader.foundation.stacks import stack_of
from aioloader.foundation.thread_start import start_thread
from aioloader.foundation.types import INDEX, BatchTimeline, ChunkResult, Slab
from aioloader.pipeline.collate import BatchRows, must_copy
from aioloader.pipeline.deliver import Delivery, deliver, valid_rows
from aioloader.pipeline.dispatch import Dispatch, Run, Started
from aioloader.pipeline.fetch import Fetch
from aioloader.pipeline.iterable_plan import IterablePlan
from aioloader.pipeline.watchdog import EpochView, Watchdog, watch_lag

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable, Iterator
    from contextlib import AbstractContextManager
    from types import CodeType, FrameType, TracebackType

    from aioloader.abc import ByteSource
    from aioloader.foundation.types import Chunk
    from aioloader.observability.trace import EpochTrace
    from aioloader.pipeline.context import PipelineContext
    from aioloader.pipeline.plan import BatchPlan


_log = logging.getLogger("aioloader")
_POLL_S = 1.0


class HeldLoopWatch:
    """Observer of the thread of an event loop. It logs a warning when one call stays there for too long.

    The thread ends with the ``with`` block.

    Args:
        name: what is called, for the message: "the sampler Permutation".
        call: code of the function that calls it, in which the thread is while the loop is held.
        count: returns the number of the call that is under way, or was last.
        after_s: seconds after which it reports, and again at growing intervals.
    """

    def __init__(self, name: str, call: CodeType, count: Callable[[], int], after_s: float) -> None:
        self._name = name
        self._call = call
        self._count = count
        self._after_s = after_s
        self._loop = threading.get_ident()
        self._ended = threading.Event()

    def __enter__(self) -> None:
        with suppress(ThreadStartError):  # without the watch the epoch can be run all the same
            start_thread(self._watch, "aioloader-watch")

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()

    def _watch(self) -> None:
        interval = min(_POLL_S, self._after_s / 4)
        seen: int | None = None
        held_s, due_s = 0.0, self._after_s
        while not self._ended.wait(interval):
            count = self._count() if self._is_held() else None
            if count is None or count != seen:
                seen, held_s, due_s = count, 0.0, self._after_s
                continue
            held_s += interval
            if held_s >= due_s:
                due_s = 2 * held_s
                stack = stack_of(self._loop) or ""
                _log.warning(
                    "%s has held the event loop for %.1f s, and nothing else in it can run: let it wait in a thread, "
                    "or make it an asynchronous source of samples; it is at\n%s",
                    self._name,
                    held_s,
                    stack,
                    extra={"seconds": held_s, "stack": stack},
                )

    def _is_held(self) -> bool:
        frame: FrameType | None = sys._current_frames().get(self._loop)
        while frame is not None:
            if frame.f_code is self._call:
                return True
            frame = frame.f_back
        return False


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
_MEMORY_PATIENCE_S = 2.0
# A larger copy is made in a thread.
_MOST_COPIED = 1 << 20
# Time that other samples wait for the one that shows the layout of the rows. A dataset may need several samples in the
# making at once, as one with a barrier for its workers does. With `in_order=False` a slow sample must not delay others.
_LAYOUT_PATIENCE_S = 5.0
_UNORDERED_PATIENCE_S = 0.05
# Time that the feeder may keep the loop while many permits are free: the first batch is dispatched when it yields.
_YIELD_S = 0.002


def _next_plan(plans: Iterator[BatchPlan]) -> BatchPlan | None:
    """Return the next plan. No exception of a sampler ends the task, except Ctrl-C, which is not the sampler's."""
    try:
        return next(plans, None)
    except (Exception, KeyboardInterrupt):
        raise
    except BaseException as error:
        raise LoaderError(f"the sampler raised {type(error).__name__}: {error}") from error


class BatchTask:
    """A batch in the making. Call `prepare`, then `complete`; or `abandon` at any time before `complete`.

    Args:
        context: the shared parts.
        plan: which samples.
        source: reads the bytes; None without a byte part.
        run: runs chunks, see `aioloader.abc.Executor.run`.

    Attributes:
        timeline: the stage that the batch is in, and when it entered each.
    """

    def __init__(
        self, context: PipelineContext, plan: BatchPlan, source: ByteSource | None, run: Run
    ) -> None:
        self.context = context
        self.plan = plan
        self.timeline = BatchTimeline()
        self._source = source
        self._fetch = Fetch(context, plan, source)
        self._arrays = BatchRows(len(plan.indices))
        self._result = ChunkResult()
        self._done: list[int] = []
        self._is_read = False
        self._is_over = False  # a sample failed that ends the batch
        # The sample that would have shown the layout of the rows, but takes long.
        self._first: Started | None = None
        # Not a method of this task: that would be a cycle, and memory would wait for the garbage collector.
        self._owned: list[Slab] = []
        self._holders = RefCount(functools.partial(context.memory.free_later, self._owned))
        self._dispatch = Dispatch(context, plan, run, timeline=self.timeline, holders=self._holders)

    async def prepare(
        self,
        wait_for_memory: Callable[[BatchTask], Awaitable[None]],
        tasks: anyio.abc.TaskGroup | None = None,
    ) -> None:
        """Plan the reads, get slab memory, and find the row layout if it is not known yet.

        Args:
            wait_for_memory: calls `allocate` until it succeeds, or raises `too_large`.
            tasks: where the sample that shows the layout is made if it takes long; None: it is waited for.

        If it raises or is cancelled, the task is abandoned.
        """
        try:
            await self._fetch.plan()
            await wait_for_memory(self)
            if self.context.layout is None and not self.context.custom_collate:
                await self._discover(tasks)
                if self._first is None:
                    await wait_for_memory(self)
        except BaseException:
            self.abandon()
            raise

    def abandon(self) -> None:
        """Give the batch up; its slabs are freed when nothing uses them any more."""
        if self._first is not None:
            self._first.abandon()
        self._holders.leave()

    # -- memory ------------------------------------------------------------------------------------------------------

    def allocate(self) -> bool:
        """Take the slabs that are known to be needed; return False if there is no room (nothing is taken then)."""
        fetch, arrays, memory = self._fetch, self._arrays, self.context.memory
        taken = None
        if fetch.slab is None and fetch.nbytes:
            taken = memory.allocate(fetch.nbytes)
            if taken is None:
                return False
        if arrays.slab is None:
            if not arrays.allocate(self.context):
                if taken is not None:
                    memory.free(taken)
                return False
            if arrays.slab is not None:
                self._owned.append(arrays.slab)
        if taken is not None:
            fetch.slab = taken
            self._owned.append(taken)
        self._note_size()
        return True

    def _note_size(self) -> None:
        fetched = 0 if self._fetch.slab is None else self._fetch.slab.nbytes
        self.context.largest_batch = max(self.context.largest_batch, fetched + self._arrays.nbytes)

    def too_large(self) -> BatchMemoryError:
        """Return the error for a batch that does not fit into slab memory."""
        context, memory, rows = self.context, self.context.memory, self._arrays.rows
        # The sizes of files are not known before they were read.
        needed = self._fetch.nbytes if self._fetch.slab is None else self._fetch.slab.nbytes
        needed += context.spill(rows)
        if context.layout is not None:
            needed += context.layout.offsets(rows)[1]
        return BatchMemoryError(rows, needed, memory.limit, memory.leased + memory.forked)

    # -- samples -----------------------------------------------------------------------------------------------------

    async def _read(self) -> None:
        if self._is_read:
            return
        self._is_read = True
        self.timeline.enter("fetch")
        await self._fetch.read(self._owned)
        self._result.failures += self._fetch.failures
        self._done += [failure.row for failure in self._fetch.failures]

    async def _discover(self, tasks: anyio.abc.TaskGroup | None) -> None:
        """Make samples one at a time, by value, until one of them shows the layout of the rows, or takes long."""
        await self._read()
        self.timeline.enter("work")
        for row in range(self._arrays.rows):
            if self.context.layout is not None:
                break
            if row in self._done:
                continue
            chunk = self._single(self._fetch, self._arrays, row)
            if tasks is None:
                result = await self._dispatch.run([chunk])
            else:
                self._first = self._dispatch.start(tasks, [chunk])
                with anyio.move_on_after(self._patience_s):
                    await self._first.wait()
                if not self._first.is_over:
                    # The batch goes on without rows; what it has for results without rows belongs to this sample.
                    self.context.layout_is_late = True
                    self._arrays.spill = (self._arrays.spill[0], 0)
                    self._done.append(row)
                    return
                result = await self._first.result()
                self._first = None
            if result.incomplete:
                continue  # `complete` makes it: other samples still need this memory
            self._done.append(row)
            self._take_first(result)
            if self._is_over:
                break
        slab = self._arrays.drop()  # it has no rows
        if slab is not None and not self._result.tainted:
            self._owned.remove(slab)
            self.context.memory.free(slab)

    @property
    def _patience_s(self) -> float:
        if self.context.layout_is_late:
            return 0.0
        return _LAYOUT_PATIENCE_S if self.context.in_order else _UNORDERED_PATIENCE_S

    def _take_first(self, result: ChunkResult) -> None:
        """Take the sample that shows the layout of the rows."""
        self.context.guess_spill(result.spill_nbytes)
        result.spill_nbytes = 0
        self._result.merge(result)
        self._is_over = bool(result.failures) and self.context.on_error == "raise"
        for sample in result.values.values():
            if self.context.layout is None:
                self._dispatch.learn_layout(sample)

    def _single(self, fetch: Fetch, arrays: BatchRows, row: int) -> Chunk:
        return self._dispatch.chunk(fetch, arrays, np.asarray([row]), spill=self._arrays.spill)

    async def complete(self, ahead: int = 0) -> Delivery:
        """Make the remaining samples and the batch. The error of a batch that failed is in its delivery.

        Args:
            ahead: batches in flight that will be delivered before this one.
        """
        try:
            await self._read()
            self.timeline.enter("work")
            result, arrays = self._result, self._arrays
            chunks = [] if self._is_over else self._dispatch.chunks(self._fetch, arrays, self._done, ahead)
            made = await self._dispatch.run(chunks) if chunks else ChunkResult()
            if self._first is not None:
                first = await self._first.result()
                if first.incomplete:
                    made.merge(first)
                else:
                    self._take_first(first)
            if made.failures and made.incomplete:
                made = await self._remake(made, made.incomplete)
            result.merge(made)
            replacement = None
            if result.failures and self.context.on_error == "replace" and not valid_rows(result, arrays.rows):
                replacement = await self._find_replacement()
            self.timeline.enter("collate")
            # Without the layout all samples are results without rows; later ones are not.
            self._dispatch.learn_costs(result, arrays.rows, len(chunks) if self._first is None else 0)
            if not result.tainted:
                arrays.give_back(self.context.memory, result.roots)
                self._note_size()
            copy = must_copy(self.context, result, arrays)
            build = functools.partial(
                deliver,
                self.context,
                self.plan,
                result,
                arrays=arrays,
                index_table=self._fetch.index_table,
                replacement=replacement,
                copy=copy,
            )
            threads = self.context.threads
            if copy and threads is not None and arrays.nbytes > _MOST_COPIED:
                delivery = await threads.run(build)
            else:
                delivery = build()
            if arrays.leased and arrays.slab is not None:
                self._owned.remove(arrays.slab)
            self._result = ChunkResult()
            return delivery
        except Exception as raised:
            error = printable(raised)
            add_note(error, f"in batch {self.plan.number} of this epoch")
            return Delivery(self.plan.consumed, error=error)
        except SystemExit as error:
            ended = LoaderError("the batchify function called sys.exit")
            ended.__cause__ = error
            return Delivery(self.plan.consumed, error=ended)
        finally:
            self._holders.leave()

    async def _remake(self, made: ChunkResult, incomplete: list[int]) -> ChunkResult:
        """Read items whole of which the parts were not enough, and make their samples; return the whole result.

        A batch that is collated as a whole is made again as a whole.
        """
        self._fetch.exclude(incomplete)
        rows = np.array(incomplete)
        again = set(incomplete)
        made.failures = [failure for failure in made.failures if failure.row not in again]
        if self.context.custom_collate:
            rows = np.setdiff1d(np.arange(self._arrays.rows), self._done)
            before, made = made, ChunkResult(tainted=made.tainted)
            made.add(before)
        # Results without rows that the first attempt left in the spill are still needed.
        spill = (self._arrays.spill[0], 0)
        while len(rows):
            self.timeline.enter("fetch")
            read, failures = await self._fetch.read_whole(rows, self._owned)
            rows = rows[len(read) :]
            made.failures += failures
            read = np.setdiff1d(read, [failure.row for failure in failures])
            self.timeline.enter("work")
            if len(read):
                chunk = self._dispatch.chunk(self._fetch, self._arrays, read, spill=spill)
                made.merge(await self._dispatch.run([chunk]))
        return made

    async def _find_replacement(self) -> int | None:
        """Make one sample of another item for a batch whose samples all failed; by value, as its row 0.

        Returns:
            the item's index; None if no item that was tried is valid.
        """
        context, plan, result = self.context, self.plan, self._result
        if plan.samples is not None or plan.keys is not None:
            return None  # an iterable's next samples belong to the next batch, and other keys are not known
        slab = self._fetch.slab
        if slab is not None and not result.tainted:
            # Nothing reads it any more; freed, it leaves room for one sample, however little memory there is.
            self._owned.remove(slab)
            context.memory.free(slab)
            self._fetch.slab = None
        by_value = BatchRows(self._arrays.rows)
        for index in fallback_indices(int(self._fetch.index_table[INDEX, 0]), context.items.length):
            one = replace(
                plan, indices=np.asarray([index]), epochs=plan.epochs[:1], positions=plan.positions[:1]
            )
            fetch = Fetch(context, one, self._source, whole=True)
            await fetch.plan()
            if fetch.nbytes:
                fetch.slab = context.memory.allocate(fetch.nbytes)
                if fetch.slab is None:
                    return None
                self._owned.append(fetch.slab)
            await fetch.read(self._owned)
            if fetch.failures:
                continue
            made = await self._dispatch.run([self._single(fetch, by_value, 0)])
            result.tainted |= made.tainted
            if not made.failures:
                result.merge(made)
                return index
        return None


class EpochRunner:
    """An epoch in progress. Made inside the event loop that runs it.

    Backpressure: one number, `prefetch`, limits the batches between the start of their reads and their delivery. The
    feeder takes the permits, in the order of the batches; the iterator returns them.

    Args:
        context: the shared parts.
        plans: the batches, in order.
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
        plans: Iterable[BatchPlan] | IterablePlan,
        trace: EpochTrace | None = None,
        order: str | None = None,
    ) -> None:
        self._order = order
        self._asked = 0
        self._context = context
        self._trace = trace
        self._plans = plans
        self._limit = max(1, context.prefetch)
        self._permits = anyio.Semaphore(self._limit, fast_acquire=True)
        self._reorder: Reorder[Delivery] = Reorder(self._limit + 1, in_order=context.in_order)
        self._arrived = Notification()
        self._memory_freed = Notification()
        self._not_begun: set[BatchTask] = set()
        self._making: dict[int, BatchTask] = {}
        self._wanted = False
        self._awaits_source = False  # the dataset's source of samples
        self._scope: anyio.CancelScope | None = None
        self._stop_requested = False
        self._planned: int | None = None  # number of batches, once all are planned
        self._notify = loop_notifier()
        self.loop: Any = anyio.lowlevel.current_token().native_token
        self._completed = False
        self.started = False
        self.ended = anyio.Event()

    # -- the iterator's side ---------------------------------------------------------------------------------------

    async def next(self) -> Delivery | None:
        """Return the next batch in order, or None at the end of the epoch."""
        while True:
            delivery = self._reorder.pop()
            if delivery is not None:
                self._wanted = False
                self._permits.release()
                self._context.metrics.in_flight = self._in_flight
                self._memory_freed.set()
                if self._trace is not None:
                    self._trace.end(self._reorder.latest, delivery.samples)
                return delivery
            if self._planned is not None and self._reorder.next >= self._planned:
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
    def _in_flight(self) -> int:
        return self._limit - self._permits.value

    @property
    def ready(self) -> bool:
        """Return True if the next batch is ready."""
        return self._reorder.ready

    def stop(self) -> None:
        """Ask the supervisor to end the epoch. From any thread, also inside the garbage collector."""
        self._notify(self._stop)

    def _stop(self) -> None:
        self._stop_requested = True
        if self._scope is not None:
            self._scope.cancel()

    # -- the supervisor's side -------------------------------------------------------------------------------------

    async def supervise(self) -> None:
        """Run the epoch to its end, or until `stop`. Raises nothing but cancellation.

        An error of the executor's own tasks is delivered after the batches that were made before it.
        """
        self.started = True
        context = self._context
        try:
            with anyio.CancelScope() as self._scope:
                if self._stop_requested:
                    self._scope.cancel()
                try:
                    async with anyio.create_task_group() as watching:
                        watching.start_soon(deferred(watch_lag), context.metrics.lag)
                        if context.stall_timeout is not None:
                            watchdog = Watchdog(context, self._view, context.stall_timeout)
                            watching.start_soon(deferred(watchdog.run))
                        async with context.executor.serving(), anyio.create_task_group() as tasks:
                            await self._feed(tasks)
                        watching.cancel_scope.cancel()
                except Exception as error:
                    self._fail(single(error))
                self._completed = True
        finally:
            for task in self._not_begun:
                task.abandon()
            self._making.clear()
            if not self._completed:
                self._reorder.clear()  # no task will take these; their memory is free at once
            self._scope = None
            self.ended.set()
            self._arrived.set()

    async def _feed(self, tasks: anyio.abc.TaskGroup) -> None:
        """Start one task per batch. Permits and memory are taken here only, in the order of the batches."""
        with self._watch_order():
            if isinstance(self._plans, IterablePlan):
                with self._plans.scope:
                    await self._feed_from(tasks, self._plans)
            else:
                await self._feed_from(tasks, iter(self._plans))

    def _watch_order(self) -> AbstractContextManager[None]:
        after_s = self._context.stall_timeout
        if self._order is None or after_s is None:
            return nullcontext()
        function = IterablePlan.request if isinstance(self._plans, IterablePlan) else _next_plan
        return HeldLoopWatch(self._order, function.__code__, lambda: self._asked, after_s)

    async def _feed_from(self, tasks: anyio.abc.TaskGroup, plans: Iterator[BatchPlan] | IterablePlan) -> None:
        context = self._context
        number = 0
        try:
            yielded_at = 0.0
            complete = deferred(self._complete)
            while True:
                if not self._permits.value:
                    await self._permits.acquire()
                    yielded_at = perf_counter()
                else:
                    await self._permits.acquire()
                    if number and perf_counter() - yielded_at > _YIELD_S:
                        await anyio.lowlevel.checkpoint()
                        yielded_at = perf_counter()
                self._asked += 1
                if isinstance(plans, IterablePlan):
                    plan = await self._next_samples(plans)
                else:
                    plan = _next_plan(plans)
                if plan is None:
                    break
                task = BatchTask(context, plan, context.source, context.executor.run)
                self._making[number] = task
                if self._trace is not None:
                    self._trace.begin(number, task.timeline)
                await task.prepare(self._wait_for_memory, tasks)
                context.metrics.in_flight = self._in_flight
                self._not_begun.add(task)
                tasks.start_soon(complete, task, number)
                number += 1
        except Exception as error:
            self._making.pop(number, None)
            # Delivered in place of the batch that could not be started, after all earlier ones.
            self._reorder.push(number, Delivery(-1, error=error))
            number += 1
        finally:
            if isinstance(plans, IterablePlan):
                await plans.aclose()
        self._planned = number
        self._arrived.set()

    async def _next_samples(self, plans: IterablePlan) -> BatchPlan | None:
        self._awaits_source = True
        begin = perf_counter()
        plan = await plans.next()
        self._awaits_source = False
        if self._trace is not None:
            self._trace.asked_source(begin)
        return plan

    def _fail(self, error: BaseException) -> None:
        """End the epoch with `error`, in place of the first batch that has not arrived."""
        number = self._reorder.first_missing()
        self._reorder.drop_from(number)
        self._reorder.push(number, Delivery(-1, error=error))
        self._planned = number + 1

    async def _wait_for_memory(self, task: BatchTask) -> None:
        """Wait for slab memory: until deliveries of this epoch, the caller, or an abandoned epoch free some.

        A lease that the caller releases sends no signal, hence the poll.
        """
        context = self._context
        alone_since = None
        while not task.allocate():
            if task.timeline.stage != "memory":
                task.timeline.enter("memory")
            now = perf_counter()
            if self._in_flight > 1:
                alone_since = None
            elif alone_since is None:
                alone_since = now
            elif now - alone_since > _MEMORY_PATIENCE_S:
                # Results without rows can do with less.
                if not context.limit_spill(len(task.plan.indices)):
                    raise task.too_large()
                continue
            with anyio.move_on_after(_MEMORY_POLL_S):
                await self._memory_freed.wait()
            context.metrics.memory_wait_s += perf_counter() - now

    async def _complete(self, task: BatchTask, number: int) -> None:
        self._not_begun.discard(task)
        delivery = await task.complete(number - self._reorder.next)
        task.timeline.enter("reorder")
        delivery.timeline = task.timeline
        del self._making[number]
        self._reorder.push(number, delivery)
        self._memory_freed.set()
        self._arrived.set()

    def _view(self) -> EpochView:
        number = self._reorder.next
        task = self._making.get(number)
        return EpochView(
            wanted=self._wanted,
            batch=number,
            stage=task.timeline.stage if task is not None else "source" if self._awaits_source else "start",
            indices=() if task is None else tuple(task.plan.indices.tolist()),
            under_way={each: other.timeline.stage for each, other in self._making.items()},
            ready=len(self._reorder),
            prefetch=self._limit,
        )
