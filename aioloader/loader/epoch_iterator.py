"""One epoch as the caller sees it: the batches that were delivered, the failed samples, and the end.

`AsyncBatches` takes batches from the pipeline; its counterpart for plain ``for`` loops is in `sync_loader`.
"""

from __future__ import annotations

import functools
import weakref
from time import perf_counter
from typing import TYPE_CHECKING, Any, Generic, Protocol, TypeVar

import anyio.to_thread

from aioloader.errors import SampleError, TooManyErrorsError, over_budget
from aioloader.foundation.decodes import warn_of_bad_entries
from aioloader.foundation.error_log import strip_exception
from aioloader.observability.progress import ProgressBar, open_progress_bar

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from aioloader.foundation.types import BatchTimeline, StorageStats
    from aioloader.loader.checkpoint import EpochCursor
    from aioloader.loader.options import LoaderOptions
    from aioloader.loader.outputs import Converter
    from aioloader.loader.planner import EpochPlanner
    from aioloader.metrics import Metrics
    from aioloader.observability.trace import EpochTrace, Tracer
    from aioloader.pipeline.collate import Delivery
    from aioloader.pipeline.epoch_runner import EpochRunner
    from aioloader.pipeline.inline import InlinePipeline
    from aioloader.pipeline.plan import Plan, PlannedBatches

B = TypeVar("B")
# Kept samples of the set are counted this often, which takes a millisecond for a million of them.
_COUNTED_S = 1.0


class CallerMetrics:
    """The caller's side of an epoch, counted, traced and shown; `end` ends that, also where the epoch is left early.

    A finaliser of the iterator holds it. So it refers to nothing that leads to an error: the error's traceback leads to
    the iterator, which would then never be collected.

    Args:
        metrics: the loader's counters.
        trace: of the epoch, or None.
        memory_usage: returns the bytes of slab memory in use, their maximum and the limit, for the trace.

    Attributes:
        bar: the epoch's progress bar, once it is open.
    """

    def __init__(
        self,
        metrics: Metrics,
        trace: EpochTrace | None = None,
        memory_usage: Callable[[], tuple[int, int, int]] = lambda: (0, 0, 0),
    ) -> None:
        self._metrics = metrics
        self._trace = trace
        self._memory_usage = memory_usage
        self._token = metrics.latest_epoch = object()
        self.bar: ProgressBar | None = None

    def record_request(self) -> float:
        """Record that the caller requests a batch; return the time, for `record_delivery`."""
        now, metrics = perf_counter(), self._metrics
        if metrics.work.bad_entries:
            # Before anything is requested: a warning may be an error.
            warn_of_bad_entries(metrics.work.bad_entries, metrics.warned)
        if metrics.started is None:
            metrics.started = now
            metrics.passes = 1
        if metrics.cpu_from is None:
            metrics.begin()
        if metrics.paused is not None:
            metrics.paused_s += now - metrics.paused
            metrics.paused = None
            metrics.passes += 1
            metrics.begins = True
        if metrics.delivered_at is not None:
            metrics.consumer_s += now - metrics.delivered_at
            metrics.delivered_at = None
        if self._trace is not None:
            self._trace.record_request(now)
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
                spent[stage] += end - since
                if end > requested:
                    waits[stage] += end - max(since, requested)
                end = since
            if end > requested:  # the batch was begun after the request
                waits["start"] += end - requested
        if self._trace is not None:
            self._trace.record_delivery(requested, samples, self._memory_usage())

    def end(self) -> None:
        """Close the progress bar and the trace, and stop the timer. May be called twice, from any thread."""
        # Unless another epoch has begun, the time that follows belongs to none.
        if self._metrics.latest_epoch is self._token:
            self._metrics.pause()
        if self.bar is not None:
            self.bar.close()
        if self._trace is not None:
            self._trace.close()


class FailedSamples:
    """Samples of an epoch that failed, and the limits of their number.

    Args:
        errors: returns the list of the loader's failed samples.
        options: the loader's options.
        metrics: the loader's counters.

    Attributes:
        samples: number of samples of the epoch so far, failed ones included.
        count: number of those that failed.
    """

    def __init__(
        self, errors: Callable[[], list[SampleError]], options: LoaderOptions, metrics: Metrics
    ) -> None:
        self._errors = errors
        self._options = options
        self._metrics = metrics
        self.samples = 0
        self.count = 0

    def add(self, error: SampleError) -> None:
        """Add the one that ends the epoch, or its batch."""
        self._errors().append(error)

    def extend(self, failed: list[SampleError]) -> None:
        """Add those that were left out or replaced."""
        for error in failed:
            strip_exception(error)
        self._errors().extend(failed)
        self.count += len(failed)
        replaced = sum(error.replaced_by is not None for error in failed)
        self._metrics.replaced += replaced
        self._metrics.skipped += len(failed) - replaced
        self.samples -= replaced  # the samples in their places are counted

    def too_many(self, at_end: bool = False) -> TooManyErrorsError | None:
        """Return the error to raise if more samples failed than `max_errors` or `max_error_rate` allows."""
        errors = self._errors()
        for option, limit in (
            ("max_errors", self._options.max_errors),
            ("max_error_rate", self._options.max_error_rate),
        ):
            too_many = over_budget(limit, len(errors), self.count, self.samples, at_end, option=option)
            if too_many is not None:
                too_many.__cause__ = errors[-1]
                return too_many
        return None


class EpochBar:
    """Progress bar of an epoch, opened by its first batch.

    Args:
        caller: closes the bar.
        metrics: the loader's counters.
        kind: the loader's option `progress`.
        text: text before the bar.
        total: returns the number of samples that the epoch still has, or None.
        storage: returns the counters of the loader's byte source, or None.
    """

    def __init__(
        self,
        caller: CallerMetrics,
        metrics: Metrics,
        kind: bool | str,
        text: str,
        total: Callable[[], int | None],
        storage: Callable[[], StorageStats | None],
    ) -> None:
        self._caller = caller
        self._metrics = metrics
        self._kind = kind
        self._text = text
        self._total = total
        self._storage = storage
        self._waited = metrics.wait_s, metrics.consumer_s
        self._kept, self._counted = "", -_COUNTED_S

    def advance(self, samples: int) -> None:
        """Show a batch."""
        if self._caller.bar is None:
            if not self._kind:
                return
            self._caller.bar = open_progress_bar(self._kind, self._text, self._total())
            if self._caller.bar is None:
                self._kind = False
                return
        metrics = self._metrics
        waited, took = metrics.wait_s - self._waited[0], metrics.consumer_s - self._waited[1]
        starved = waited / (waited + took) if waited + took else 0.0
        if (now := perf_counter()) - self._counted > _COUNTED_S:
            self._counted, self._kept = now, self._kept_share()
        self._caller.bar.advance(samples, f"{starved:.0%} waiting for data{self._kept}")

    def _kept_share(self) -> str:
        """Return the share of samples that `cache_samples` keeps, while samples are added."""
        storage = self._storage()
        if storage is None or not storage.kept_items or storage.kept_full:
            return ""
        share = (storage.kept_samples or 0) / storage.kept_items
        return f", {share:.0%} kept" if share < 1 else ""


class Epoch:
    """One epoch: its plan, and what the caller has received from it.

    Args:
        cursor: where the caller is in the epoch; moved with every batch.
        planner: makes the plan of the epoch, records its progress, and has the loader's options.
        metrics: the loader's counters.
        errors: returns the list of the loader's failed samples.
        convert: converts a batch before it is delivered, or None.
        tracer: the loader's trace, or None.
        memory_usage: returns the bytes of slab memory in use, their maximum and the limit, for traces.
        storage: returns the counters of the loader's byte source, or None, for the progress bar.

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
        metrics: Metrics,
        errors: Callable[[], list[SampleError]],
        convert: Converter | None,
        tracer: Tracer | None,
        memory_usage: Callable[[], tuple[int, int, int]],
        storage: Callable[[], StorageStats | None],
    ) -> None:
        self.cursor = cursor
        self._planner = planner
        options = planner.options
        self._failures = FailedSamples(errors, options, metrics)
        self.convert = convert
        self._plan: Plan | None = None
        self.trace = None if tracer is None else tracer.begin_epoch(cursor.epoch)
        self._caller = CallerMetrics(metrics, self.trace, memory_usage)
        self.record_request: Callable[[], float] = self._caller.record_request
        self.record_delivery: Callable[[float, int, BatchTimeline | None], None] = (
            self._caller.record_delivery
        )
        self.end: Callable[[], None] = self._caller.end
        self._bar = (
            EpochBar(
                self._caller,
                metrics,
                options.progress,
                f"epoch {cursor.epoch}",
                functools.partial(planner.samples_left, cursor.consumed),
                storage,
            )
            if options.progress
            else None
        )
        self.goes_on = False
        self.over = False

    @property
    def number(self) -> int:
        """Return the epoch number."""
        return self.cursor.epoch

    def plans(self) -> PlannedBatches:
        """Return the batches to be made."""
        if self._plan is None:
            self._plan = self._planner.plan(self.cursor)
        return self._plan.planned(self.cursor.remember)

    @property
    def computed(self) -> bool:
        """Return True if the batches can be planned long before they are made: nobody notices when they are."""
        return self._plan is not None and self._plan.computed

    @property
    def skip(self) -> Callable[[], None] | None:
        """Return the function that computes the batches before the first one (blocking), if there are any."""
        return self._plan.skip if self._plan is not None and self._plan.skips else None

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
            self._failures.extend(delivery.skipped)
        self._failures.samples += delivery.samples + len(delivery.skipped)
        if delivery.error is not None:
            self._lose(delivery)
            if isinstance(delivery.error, SampleError):
                self._failures.add(delivery.error)
            try:
                raise delivery.error
            finally:
                delivery.error = None  # breaks the cycle error -> traceback -> frame -> delivery
        if delivery.skipped:
            self._check_errors()
        has_batch = delivery.samples > 0 or self._planner.exact
        convert = convert or self.convert
        if convert is not None and has_batch:
            try:
                delivery.batch = convert(delivery.batch)
            except BaseException:
                self._lose(delivery)
                raise
        plan = self.cursor.enter(delivery)
        if plan.source_state is not None:
            self.cursor.source_state = plan.source_state
        if self._bar is not None:
            self._bar.advance(delivery.samples)
        if not has_batch:
            self.cursor.empty += 1
        return has_batch

    def _lose(self, delivery: Delivery) -> None:
        """End the epoch, or log a batch that failed as delivered: else the next one would be logged in its place."""
        if not self.goes_on or delivery.consumed < 0:  # the epoch itself failed
            self.over = True
            return
        self.cursor.enter(delivery)

    def _check_errors(self, at_end: bool = False) -> None:
        too_many = self._failures.too_many(at_end)
        if too_many is not None:
            self.over = True
            raise too_many

    def finish(self) -> None:
        """Record that all batches were delivered.

        Raises:
            TooManyErrorsError: a greater share of samples failed than allowed, in a short epoch.
        """
        self.over = True
        if self._failures.count:
            self._check_errors(at_end=True)
        assert self._plan is not None
        self._planner.finish(self.cursor, self._plan)
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
