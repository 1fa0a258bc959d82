"""One epoch as the caller sees it: the batches that were delivered, the failed samples, and the end.

`AsyncBatches` takes batches from the pipeline; its counterpart for plain ``for`` loops is in `sync_loader`.
"""

from __future__ import annotations

import weakref
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import anyio.to_thread

from aioloader.errors import SampleError, over_budget
from aioloader.foundation.decodes import warn_of_bad_entries
from aioloader.foundation.error_log import strip_exception
from aioloader.observability.progress import ProgressBar, open_progress_bar
from aioloader.pipeline.deliver import Delivery, DeliveryLog
from aioloader.pipeline.iterable_plan import IterablePlan
from aioloader.pipeline.plan import ComputedListPlan, EpochPlan

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Iterable

    from aioloader.foundation.types import BatchTimeline
    from aioloader.loader.checkpoint import EpochCursor
    from aioloader.loader.options import LoaderOptions
    from aioloader.loader.outputs import Converter
    from aioloader.loader.planner import EpochPlanner
    from aioloader.metrics import Metrics
    from aioloader.observability.trace import EpochTrace, Tracer
    from aioloader.pipeline.epoch_runner import EpochRunner
    from aioloader.pipeline.inline import InlinePipeline
    from aioloader.pipeline.plan import BatchPlan, ListPlan

B = TypeVar("B")


class CallerMetrics:
    """The caller's side of an epoch, counted. It does not refer to the epoch: no cycle.

    Args:
        metrics: the loader's counters.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics

    def record_request(self) -> float:
        """Record that the caller requests a batch; return the time, for `record_delivery`."""
        now, metrics = perf_counter(), self._metrics
        if metrics.work.bad_entries:
            # Before anything is requested: a warning may be an error.
            warn_of_bad_entries(metrics.work.bad_entries, metrics.warned)
        if metrics.started is None:
            metrics.started = now
            metrics.passes = 1
        metrics.begin()
        if metrics.paused is not None:
            metrics.paused_s += now - metrics.paused
            metrics.paused = None
            metrics.passes += 1
            metrics.begins = True
        if metrics.delivered_at is not None:
            metrics.consumer_s += now - metrics.delivered_at
            metrics.delivered_at = None
        return now

    def record_delivery(self, requested: float, samples: int, timeline: BatchTimeline | None = None) -> None:
        """Count a batch that the caller received, and split the time that it waited by the batch's stages.

        Args:
            requested: time of its request, from `record_request`.
            samples: number of samples in the batch.
            timeline: the batch's timeline, or None.
        """
        end = now = perf_counter()
        metrics = self._metrics
        metrics.wait_s += now - requested
        if metrics.begins:
            metrics.begins = False
            metrics.first_wait_s += now - requested
        metrics.batches += 1
        metrics.samples += samples
        metrics.ended = metrics.delivered_at = now
        if metrics.first_batch_s is None and metrics.started is not None:
            metrics.first_batch_s = now - metrics.started
        if timeline is not None:
            spent, waits = metrics.spent, metrics.waits
            # Of each stage, from `since` to `end`, the caller waited for the part after its request.
            for stage, since in reversed(timeline.times):
                spent[stage] = spent.get(stage, 0.0) + end - since
                if end > requested:
                    waits[stage] = waits.get(stage, 0.0) + end - max(since, requested)
                end = since
            if end > requested:  # the batch was begun after the request
                waits["start"] = waits.get("start", 0.0) + end - requested


class TracedMetrics(CallerMetrics):
    """The caller's side of an epoch, counted and recorded in the trace."""

    def __init__(
        self, metrics: Metrics, trace: EpochTrace, memory_usage: Callable[[], tuple[int, int, int]]
    ) -> None:
        super().__init__(metrics)
        self._trace = trace
        self._memory_usage = memory_usage

    def record_request(self) -> float:
        now = super().record_request()
        self._trace.record_request(now)
        return now

    def record_delivery(self, requested: float, samples: int, timeline: BatchTimeline | None = None) -> None:
        super().record_delivery(requested, samples, timeline)
        self._trace.record_delivery(requested, samples, self._memory_usage())


class EpochCleanup:
    """Function that closes the progress bar, the trace and the timer when an epoch ends or is left.

    A finaliser of the iterator holds it. So it refers to nothing that leads to an error: the error's traceback leads to
    the iterator, which would then never be collected.

    Attributes:
        bar: the epoch's progress bar, once it is open.
    """

    def __init__(self, metrics: Metrics, trace: EpochTrace | None) -> None:
        self._metrics = metrics
        self._trace = trace
        self._token = metrics.latest_epoch = object()
        self.bar: ProgressBar | None = None

    def __call__(self) -> None:
        """Close them. May be called twice, from any thread."""
        # Unless another epoch has begun, the time that follows belongs to none.
        if self._metrics.latest_epoch is self._token:
            self._metrics.pause()
        if self.bar is not None:
            self.bar.close()
        if self._trace is not None:
            self._trace.close()


class Epoch:
    """One epoch: its plan, and what the caller has received from it.

    Args:
        cursor: where the epoch starts; moved with every batch.
        planner: makes the plan of the epoch, and records its progress.
        options: the loader's options.
        metrics: the loader's counters.
        errors: returns the list of the loader's failed samples.
        convert: converts a batch before it is delivered, or None.
        tracer: the loader's trace, or None.
        memory_usage: returns the bytes of slab memory in use, their maximum and the limit, for traces.

    Attributes:
        record_request: `CallerMetrics.record_request`; on the hot path of in-memory data.
        record_delivery: `CallerMetrics.record_delivery`; on the same path.
        end: closes what the epoch has open.
        goes_on: the epoch goes on after a batch that failed, and that batch counts as delivered. False: it is over.
    """

    def __init__(
        self,
        cursor: EpochCursor,
        *,
        planner: EpochPlanner,
        options: LoaderOptions,
        metrics: Metrics,
        errors: Callable[[], list[SampleError]],
        convert: Converter | None,
        tracer: Tracer | None,
        memory_usage: Callable[[], tuple[int, int, int]],
    ) -> None:
        self._cursor = cursor
        self._planner = planner
        self._options = options
        self._metrics = metrics
        self._errors = errors
        self.convert = convert
        self._start = cursor.consumed
        self._plan: EpochPlan | ListPlan | ComputedListPlan | IterablePlan | None = None
        self._shows = bool(options.progress)
        self._waited = metrics.wait_s, metrics.consumer_s
        self.trace: EpochTrace | None = None
        caller = CallerMetrics(metrics)
        if tracer is not None:
            self.trace = tracer.begin_epoch(cursor.epoch)
            caller = TracedMetrics(metrics, self.trace, memory_usage)
        self.record_request: Callable[[], float] = caller.record_request
        self.record_delivery: Callable[[float, int, BatchTimeline | None], None] = caller.record_delivery
        self.end = EpochCleanup(metrics, self.trace)
        self.delivery_log = DeliveryLog(cursor.epoch, cursor.consumed, cursor.carry, cursor.taken)
        self._samples = 0  # so far, failed ones included
        self._failed = 0
        self.goes_on = False
        self.over = False

    @property
    def number(self) -> int:
        """Return the epoch number."""
        return self._cursor.epoch

    def plans(self) -> Iterable[BatchPlan] | IterablePlan:
        """Return the batches to be made."""
        if self._plan is None:
            self._plan = self._planner.plan(self._cursor)
        if isinstance(self._plan, IterablePlan):
            self._plan.on_plan = self.delivery_log.remember
            return self._plan
        return self.delivery_log.follow(self._plan)

    @property
    def computed(self) -> bool:
        """Return True if the batches can be planned long before they are made: nobody notices when they are."""
        return isinstance(self._plan, ComputedListPlan) or (
            isinstance(self._plan, EpochPlan) and self._plan.computed
        )

    @property
    def skips(self) -> bool:
        """Return True if the plan computes the batches before its first one, which may take seconds: see `skip`."""
        return isinstance(self._plan, ComputedListPlan) and self._plan.skips

    def skip(self) -> None:
        """Compute the batches before the first one. From any thread; blocking."""
        if isinstance(self._plan, ComputedListPlan):
            self._plan.skip()

    def take(self, delivery: Delivery, convert: Callable[[Any], Any] | None = None) -> bool:
        """Record a delivery and convert its batch; return False if it contains nothing for the caller.

        Args:
            delivery: the batch.
            convert: converts the batch; None: the loader's own conversion.

        Raises:
            SampleError: a sample failed, with ``on_error="raise"``.
            TooManyErrorsError: more samples failed than allowed.
            OutputError: the batch could not be converted; it does not count as taken.
            Exception: the batch could not be collated, or the epoch could not go on.
        """
        if delivery.skipped:
            self._record(delivery.skipped)
        self._samples += delivery.samples + len(delivery.skipped)
        if delivery.error is not None:
            self._lose(delivery)
            if isinstance(delivery.error, SampleError):
                self._errors().append(delivery.error)
            try:
                raise delivery.error
            finally:
                delivery.error = None  # breaks the cycle error -> traceback -> frame -> delivery
        if delivery.skipped:
            self._check_errors()
        convert = convert or self.convert
        if convert is not None and delivery.samples:
            try:
                delivery.batch = convert(delivery.batch)
            except BaseException:
                self._lose(delivery)
                raise
        plan = self.delivery_log.enter(delivery)
        self._note_progress()
        if plan.source_state is not None:
            self._cursor.source_state = plan.source_state
        if self._shows:
            self._show(delivery)
        if not delivery.samples:
            self._cursor.empty += 1
        return delivery.samples > 0

    def _lose(self, delivery: Delivery) -> None:
        """End the epoch, or log a batch that failed as delivered: else the next one would be logged in its place."""
        if not self.goes_on or delivery.consumed < 0:  # the epoch itself failed
            self.over = True
            return
        self.delivery_log.enter(delivery)
        self._note_progress()

    def _note_progress(self) -> None:
        self._cursor.consumed = self.delivery_log.consumed
        if self._cursor.taken or not self._options.in_order:
            self._cursor.taken = self.delivery_log.taken

    def _record(self, failed: list[SampleError]) -> None:
        for error in failed:
            strip_exception(error)
        self._errors().extend(failed)
        self._failed += len(failed)
        replaced = sum(error.replaced_by is not None for error in failed)
        self._metrics.replaced += replaced
        self._metrics.skipped += len(failed) - replaced
        self._samples -= replaced  # the samples in their places are counted

    def _check_errors(self, at_end: bool = False) -> None:
        errors = self._errors()
        for option in ("max_errors", "max_error_rate"):
            limit = getattr(self._options, option)
            too_many = over_budget(limit, len(errors), self._failed, self._samples, at_end, option=option)
            if too_many is not None:
                self.over = True
                raise too_many from errors[-1]

    def _show(self, delivery: Delivery) -> None:
        metrics = self._metrics
        if self.end.bar is None:
            self.end.bar = open_progress_bar(self._options.progress, f"epoch {self.number}", self._total())
            if self.end.bar is None:
                self._shows = False
                return
        waited, took = metrics.wait_s - self._waited[0], metrics.consumer_s - self._waited[1]
        starved = waited / (waited + took) if waited + took else 0.0
        self.end.bar.advance(delivery.samples, f"{starved:.0%} waiting for data")

    def _total(self) -> int | None:
        planner = self._planner
        if (
            planner.streams
            or self._options.batch_sampler is not None
            or not hasattr(planner.sampler, "__len__")
        ):
            return None
        left = max(0, len(planner.sampler) - self._start)
        return -(-left // planner.schedule.world)

    def finish(self) -> None:
        """Record that all batches were delivered.

        Raises:
            TooManyErrorsError: a greater share of samples failed than allowed, in a short epoch.
        """
        self.over = True
        if self._failed:
            self._check_errors(at_end=True)
        assert self._plan is not None
        self._planner.progress.finish(self._cursor, self._plan.carry())
        if isinstance(self._plan, IterablePlan):
            self._planner.carried = (self.number + 1, self._plan.left_over)
        self.end()


class Running(Protocol):
    """Work of an epoch that has been started."""

    @property
    def ready(self) -> bool:
        """Return True if the next batch is ready."""

    def stop(self) -> None:
        """End the epoch. From any thread, also inside the garbage collector."""


R = TypeVar("R", bound=Running)


class EpochIterator(Generic[B, R]):
    """Base of the iterators over the batches of one epoch."""

    def __init__(self, loader: object, epoch: Epoch) -> None:
        self._loader = loader  # an iterator keeps its loader alive
        self._epoch = epoch
        weakref.finalize(self, epoch.end)  # where the loop over it is left early
        self._running: R | None = None

    @property
    def epoch(self) -> int:
        """Return the number of this epoch."""
        return self._epoch.number

    @property
    def ready(self) -> bool:
        """Return True if the next batch is ready, so that requesting it does not wait."""
        return self._running is not None and self._running.ready

    def continue_after_errors(self) -> None:
        """Let the epoch go on after the error of a batch, as torch's loaders do; that batch counts as delivered."""
        self._epoch.goes_on = True

    def _run(self, running: R) -> R:
        """Take batches from `running`, and stop it with the iterator."""
        self._running = running
        self._stop = weakref.finalize(self, running.stop)
        self._stop.atexit = False
        return running

    def _end(self) -> None:
        """Close what the epoch has open if it is over."""
        if self._epoch.over:
            self._epoch.end()
            if self._running is not None:
                self._stop()


class AsyncBatches(EpochIterator[B, "InlinePipeline | EpochRunner"]):
    """One epoch of an `AsyncDataLoader`, as an async iterator. Dropping it ends the epoch and keeps the workers.

    One task at a time may wait for its next batch. A cancelled `__anext__` loses nothing: call it again.
    """

    def __init__(
        self, loader: object, epoch: Epoch, start: Callable[[], Awaitable[InlinePipeline | EpochRunner]]
    ) -> None:
        super().__init__(loader, epoch)
        self._start = start
        self._busy = False
        self._held: Delivery | None = None

    def __aiter__(self) -> AsyncBatches[B]:
        return self

    async def __anext__(self) -> B:
        """Return the next batch.

        Raises:
            StopAsyncIteration: the epoch is over, or has failed before.
            SampleError: a sample failed, with ``on_error="raise"``; all earlier batches came first.
            TooManyErrorsError: more samples failed than ``max_errors`` or ``max_error_rate`` allows.
            OutputError: a batch could not be converted as `output` requires; the epoch ends before it.
            LoaderClosedError: the loader was closed.
            RuntimeError: another task waits for its next batch, or another event loop uses the loader.
        """
        if self._busy:
            raise RuntimeError(
                "another task is waiting for the next batch of this iterator: make an iterator for each task"
            )
        epoch = self._epoch
        if epoch.over:
            raise StopAsyncIteration
        self._busy = True
        try:
            running = self._running or self._run(await self._start())
            requested = epoch.record_request()
            while True:
                delivery = self._held or await running.next()
                if delivery is None:
                    epoch.finish()
                    raise StopAsyncIteration
                converted = None
                if epoch.convert is not None and epoch.convert.takes_long and delivery.samples:
                    # A call that is cancelled meanwhile keeps the batch.
                    self._held = delivery
                    converted = await anyio.to_thread.run_sync(epoch.convert.ahead, delivery.batch)
                    self._held = None
                if epoch.take(delivery, converted):
                    epoch.record_delivery(requested, delivery.samples, delivery.timeline)
                    batch: B = delivery.batch
                    return batch
        except (StopAsyncIteration, Exception):
            self._end()
            raise
        finally:
            self._busy = False
