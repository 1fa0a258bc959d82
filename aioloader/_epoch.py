"""One pass over a dataset as the caller sees it: what was taken, what failed, when it is over."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader._error_budget import over_budget
from aioloader._failures import lighten
from aioloader._pipeline.stream import StreamPlan
from aioloader.errors import SampleError
from aioloader.progress_bar import ProgressBar
from aioloader.receipts import Ledger

if TYPE_CHECKING:
    from collections.abc import Iterable

    from aioloader._core import Core
    from aioloader._pipeline.engine import Delivery
    from aioloader._pipeline.plan import BatchPlan, EpochPlan, ListPlan
    from aioloader._progress import Place

__all__ = ("Epoch",)


class Epoch:
    """One pass: its plan, and the book of what the caller took from it."""

    def __init__(self, core: Core, place: Place) -> None:
        self._core = core
        self._place = place
        self._start = place.consumed
        self._plan: EpochPlan | ListPlan | StreamPlan | None = None
        self._bar: ProgressBar | None = None
        self.ledger = Ledger(place.epoch, place.consumed, place.carry)
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
            self._plan = self._core.plan(self._place)
        if isinstance(self._plan, StreamPlan):
            self._plan.told = self.ledger.remember
            return self._plan
        return self.ledger.following(self._plan)

    def take(self, delivery: Delivery) -> bool:
        """Enter a delivery into the book; False if there is nothing in it for the caller.

        Raises:
            SampleError: a sample failed, with ``on_error="raise"``.
            TooManyErrorsError: more samples failed than allowed.
            Exception: the batch could not be collated, or the pass could not go on.
        """
        core = self._core
        if delivery.skipped:
            self._record(delivery.skipped)
        self._samples += delivery.samples + len(delivery.skipped)
        if delivery.error is not None:
            self.over = True
            if isinstance(delivery.error, SampleError):
                core.errors.append(delivery.error)
            try:
                raise delivery.error
            finally:
                delivery.error = None  # breaks the cycle error -> traceback -> frame -> delivery
        if delivery.skipped:
            self._check_errors()
        self._place.consumed = delivery.consumed
        plan = self.ledger.enter(delivery)
        if plan.source_state is not None:
            self._place.source = plan.source_state
        if core.options.progress:
            self._show(delivery)
        return delivery.samples > 0

    def _record(self, failed: list[SampleError]) -> None:
        core = self._core
        for error in failed:
            lighten(error)
        core.errors += failed
        self._failed += len(failed)
        replaced = sum(error.replaced_by is not None for error in failed)
        core.metrics.replaced += replaced
        core.metrics.skipped += len(failed) - replaced
        self._samples -= replaced  # what took their places is counted

    def _check_errors(self, at_end: bool = False) -> None:
        errors = self._core.errors
        limit = self._core.options.max_errors
        too_many = over_budget(limit, len(errors), self._failed, self._samples, at_end)
        if too_many is not None:
            self.over = True
            raise too_many from errors[-1]

    def _show(self, delivery: Delivery) -> None:
        if self._bar is None:
            total = None
            core = self._core
            if core.options.batch_sampler is None and not core.streams and hasattr(core.sampler, "__len__"):
                left = max(0, len(self._core.sampler) - self._start)
                total = -(-left // self._core.geometry.world)
            self._bar = ProgressBar(f"epoch {self.number}", total, unit="samples")
        self._bar.advance(delivery.samples)

    def finish(self) -> None:
        """All batches were delivered.

        Raises:
            TooManyErrorsError: a greater share of samples failed than allowed, in a short pass.
        """
        self.over = True
        if self._failed:
            self._check_errors(at_end=True)
        assert self._plan is not None
        self._core.progress.finish(self._place, self._plan.carry())
        if isinstance(self._plan, StreamPlan):
            self._core.carried = (self.number + 1, self._plan.left_over)
        self._core.metrics.pause()
        if self._bar is not None:
            self._bar.close()
