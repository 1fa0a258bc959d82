"""Meter of a contender's output, phase by phase. Standard library and numpy only.

    first    from opening to the first batch
    warm     until caches, pools and clock rates have settled; nothing is counted
    timed    counted: batches are taken, with a short check
    lag      async contenders only: a ticker runs meanwhile; it costs a little, so it does not run in the timed phase
    memory   the parent reads the memory of all processes, which costs a little too

The parent is notified when each phase begins. The driving loops do as little per batch as possible: if a batch takes
microseconds, only every n-th is checked. A separate job checks completeness over a whole epoch (`benchmarks.checks`).
"""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING, Any

from benchmarks.checks import EpochCheck, WrongOutput, check_batch, features

if TYPE_CHECKING:
    from collections.abc import Callable

    from benchmarks.cases import Case


_LOOK_EVERY = {"arrays": 64, "bytes": 16}


class Meter:
    """Clock of one measurement.

    Args:
        case: the case.
        opened: `perf_counter` when opening began.
        phases: (name, seconds) after "first", in order; "timed" among them.
        least_batches: minimum number of batches of the timed phase.
        notify: called with the name of each phase when it begins, and with "done".

    Attributes:
        every: only every `every`-th batch is checked.
        phases: the remaining phases, the running one first.
        first_batch_s: from opening to the first batch.
        batches, seconds: of the timed phase.
        first_epoch_s: from the first batch to the end of the first epoch; 0 before that.
    """

    def __init__(
        self,
        case: Case,
        opened: float,
        phases: list[tuple[str, float]],
        least_batches: int,
        notify: Callable[[str], None],
    ) -> None:
        self.every = 1
        self.first_batch_s = 0.0
        self._case = case
        self._opened = opened
        self.phases = [("first", 0.0), *phases]
        self._least = least_batches
        self.notify = notify
        self._usual = _LOOK_EVERY.get(case.store, 1)
        self._over = 0  # batches of finished epochs
        self._began = opened
        self._began_at = 0
        self._whole = case.samples // case.batch_size
        self._seen: set[int] = set()
        self.batches = 0
        self.seconds = 0.0
        self.first_epoch_s = 0.0

    def look(self, batch: Any, number: int) -> bool:
        """Check a batch, and start the next phase if this one is over.

        Args:
            batch: the delivered batch.
            number: number of this epoch's batches so far, including this one.

        Returns:
            whether all phases are over.

        Raises:
            WrongOutput: the batch differs from the case.
        """
        now = perf_counter()
        content, numbers = check_batch(self._case, batch)
        if self._case.images and float(features(self._case, content[:1])[0, :3].max()) <= 0.0:
            raise WrongOutput("an image is black")
        if self._usual == 1:
            before = len(self._seen)
            self._seen.update(numbers.tolist())
            if len(self._seen) != before + len(numbers):
                raise WrongOutput("samples occur twice in an epoch")
        total = self._over + number
        name, seconds = self.phases[0]
        if name == "warm" and self._case.kept and not self._over:
            return False  # the first epoch decodes
        if now - self._began < seconds or (name == "timed" and total - self._began_at < self._least):
            return False
        if name == "first":
            self.first_batch_s = now - self._opened
            self.every = self._usual
        elif name == "timed":
            self.batches, self.seconds = total - self._began_at, now - self._began
        del self.phases[0]
        self.notify(self.phases[0][0] if self.phases else "done")
        self._began, self._began_at = perf_counter(), total
        return not self.phases

    def epoch_over(self, number: int) -> bool:
        """Record the end of an epoch of `number` batches.

        Raises:
            WrongOutput: an epoch of the case has another number of batches.
        """
        if number != self._whole:
            raise WrongOutput(f"an epoch has {number} batches, not {self._whole}")
        if not self._over:
            self.first_epoch_s = perf_counter() - self._opened - self.first_batch_s
        self._over += number
        self._seen.clear()
        return False


class Judge:
    """Check of one whole epoch in place of the clock's phases, for the same driving loops as `Meter`."""

    every = 1

    def __init__(self, check: EpochCheck) -> None:
        self._check = check

    def look(self, batch: Any, number: int) -> bool:
        """Check one batch; return False, because the epoch continues."""
        self._check.add(batch)
        return False

    def epoch_over(self, number: int) -> bool:
        """Check the epoch; one epoch is enough.

        Raises:
            WrongOutput: the epoch differs from the case.
        """
        self._check.judge()
        return True


def drive(stream: Any, meter: Any) -> None:
    """Iterate, epoch after epoch, until the meter ends the measurement."""
    left = 1
    while True:
        number = 0
        for batch in stream:
            number += 1
            left -= 1
            if not left:
                if meter.look(batch, number):
                    return
                left = meter.every
        if meter.epoch_over(number):
            return


async def drive_async(stream: Any, meter: Any) -> None:
    """Do the same as `drive` with an async iterable."""
    left = 1
    while True:
        number = 0
        async for batch in stream:
            number += 1
            left -= 1
            if not left:
                if meter.look(batch, number):
                    return
                left = meter.every
        if meter.epoch_over(number):
            return
