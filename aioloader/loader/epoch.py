"""One pass over a dataset as the caller sees it: what was taken, what failed, when it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.errors import SampleError
from aioloader.foundation.error_budget import over_budget
from aioloader.foundation.error_log import strip_exception
from aioloader.observability.progress import open_progress_bar
from aioloader.pipeline.iterable_plan import StreamPlan
from aioloader.receipts import DeliveryLog

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from aioloader.loader.checkpoint import EpochCursor
    from aioloader.loader.runtime import LoaderRuntime
    from aioloader.metrics import Metrics
    from aioloader.observability.progress import ProgressBar
    from aioloader.observability.timeline import BatchTimeline
    from aioloader.observability.trace import PassTrace
    from aioloader.pipeline.context import Delivery
    from aioloader.pipeline.plan import BatchPlan, EpochPlan, ListPlan

__all__ = ("Epoch",)


class TracedMetrics:
    """The caller's side of a pass, counted and taken down. Does not refer to the pass: that would be a cycle."""

    def __init__(self, runtime: LoaderRuntime, trace: PassTrace) -> None:
        self._runtime = runtime
        self._trace = trace

    def asked(self) -> float:
        """See `Metrics.asked`."""
        now = self._runtime.metrics.asked()
        self._trace.asked(now)
        return now

    def handed_out(self, asked: float, samples: int, timeline: BatchTimeline | None) -> None:
        """See `Metrics.handed_out`."""
        self._runtime.metrics.handed_out(asked, samples, timeline)
        self._trace.handed_out(asked, samples, self._runtime.memory_usage())


class EpochCleanup:
    """What is left to do when a pass is over, or was left.

    A finaliser of the iterator holds it. So it refers to nothing that leads to an error: the error's traceback leads to
    the iterator, and that would never be let go.

    Attributes:
        bar: the pass's progress bar, once there is one.
    """

    def __init__(self, metrics: Metrics, trace: PassTrace | None) -> None:
        self._metrics = metrics
        self._trace = trace
        self._pass = metrics.latest_pass = object()
        self.bar: ProgressBar | None = None

    def __call__(self) -> None:
        """May be called twice, from any thread."""
        if (
            self._metrics.latest_pass is self._pass
        ):  # unless another one has begun, the time that follows is nobody's
            self._metrics.pause()
        if self.bar is not None:
            self.bar.close()
        if self._trace is not None:
            self._trace.close()


class Epoch:
    """One pass: its plan, and the book of what the caller took from it."""

    def __init__(self, runtime: LoaderRuntime, place: EpochCursor) -> None:
        self._runtime = runtime
        self._place = place
        self._start = place.consumed
        self._plan: EpochPlan | ListPlan | StreamPlan | None = None
        self._shows = bool(runtime.options.progress)
        self._waited = runtime.metrics.wait_s, runtime.metrics.consumer_s
        # What the caller's side tells of every batch; on the hot path of data in memory.
        self.trace: PassTrace | None = None
        caller: Any = runtime.metrics
        if runtime.tracer is not None:
            self.trace = runtime.tracer.begin_pass(place.epoch)
            caller = TracedMetrics(runtime, self.trace)
        self.asked: Callable[[], float] = caller.asked
        self.handed_out: Callable[[float, int, BatchTimeline | None], None] = caller.handed_out
        self.end = EpochCleanup(runtime.metrics, self.trace)
        self.delivery_log = DeliveryLog(place.epoch, place.consumed, place.carry)
        self._samples = 0  # so far, failed ones included
        self._failed = 0
        self.over = False

    @property
    def number(self) -> int:
        """Epoch number."""
        return self._place.epoch

    def plans(self) -> Iterable[BatchPlan] | StreamPlan:
        """The batches to be made."""
        if self._plan is None:
            self._plan = self._runtime.order.plan(self._place)
        if isinstance(self._plan, StreamPlan):
            self._plan.told = self.delivery_log.remember
            return self._plan
        return self.delivery_log.following(self._plan)

    def take(self, delivery: Delivery, convert: Callable[[Any], Any] | None = None) -> bool:
        """Enter a delivery into the book; False if there is nothing in it for the caller.

        Args:
            delivery: the batch.
            convert: makes of it what is handed out; None: that is the core's affair.

        Raises:
            SampleError: a sample failed, with ``on_error="raise"``.
            TooManyErrorsError: more samples failed than allowed.
            OutputError: the batch could not be converted; it does not count as taken.
            Exception: the batch could not be collated, or the pass could not go on.
        """
        runtime = self._runtime
        if delivery.skipped:
            self._record(delivery.skipped)
        self._samples += delivery.samples + len(delivery.skipped)
        if delivery.error is not None:
            self.over = True
            if isinstance(delivery.error, SampleError):
                runtime.errors.append(delivery.error)
            try:
                raise delivery.error
            finally:
                delivery.error = None  # breaks the cycle error -> traceback -> frame -> delivery
        if delivery.skipped:
            self._check_errors()
        convert = convert or runtime.convert
        if convert is not None and delivery.samples:
            self._convert(delivery, convert)
        self._place.consumed = delivery.consumed
        plan = self.delivery_log.enter(delivery)
        if plan.source_state is not None:
            self._place.source = plan.source_state
        if self._shows:
            self._show(delivery)
        return delivery.samples > 0

    def _convert(self, delivery: Delivery, convert: Callable[[Any], Any]) -> None:
        try:
            delivery.batch = convert(delivery.batch)
        except BaseException:
            self.over = True  # or the next batch would be entered as if this one had been taken
            raise

    def _record(self, failed: list[SampleError]) -> None:
        runtime = self._runtime
        for error in failed:
            strip_exception(error)
        runtime.errors.extend(failed)
        self._failed += len(failed)
        replaced = sum(error.replaced_by is not None for error in failed)
        runtime.metrics.replaced += replaced
        runtime.metrics.skipped += len(failed) - replaced
        self._samples -= replaced  # what took their places is counted

    def _check_errors(self, at_end: bool = False) -> None:
        errors = self._runtime.errors
        limit = self._runtime.options.max_errors
        too_many = over_budget(limit, len(errors), self._failed, self._samples, at_end)
        if too_many is not None:
            self.over = True
            raise too_many from errors[-1]

    def _show(self, delivery: Delivery) -> None:
        metrics = self._runtime.metrics
        if self.end.bar is None:
            self.end.bar = open_progress_bar(
                self._runtime.options.progress, f"epoch {self.number}", self._total()
            )
            if self.end.bar is None:
                self._shows = False
                return
        waited, took = metrics.wait_s - self._waited[0], metrics.consumer_s - self._waited[1]
        starved = waited / (waited + took) if waited + took else 0.0
        self.end.bar.advance(delivery.samples, f"{starved:.0%} waiting for data")

    def _total(self) -> int | None:
        runtime = self._runtime
        if (
            runtime.order.streams
            or runtime.options.batch_sampler is not None
            or not hasattr(runtime.order.sampler, "__len__")
        ):
            return None
        left = max(0, len(runtime.order.sampler) - self._start)
        return -(-left // runtime.order.schedule.world)

    def finish(self) -> None:
        """All batches were delivered.

        Raises:
            TooManyErrorsError: a greater share of samples failed than allowed, in a short pass.
        """
        self.over = True
        if self._failed:
            self._check_errors(at_end=True)
        assert self._plan is not None
        self._runtime.order.progress.finish(self._place, self._plan.carry())
        if isinstance(self._plan, StreamPlan):
            self._runtime.order.carried = (self.number + 1, self._plan.left_over)
        self.end()
