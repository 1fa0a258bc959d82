"""The stage "plan" for samples of an async iterable, which come one after the other.

The source is asked for samples only while `prefetch` admits another batch (`aioloader.pipeline.epoch_runner`), so it
runs ahead of the caller by `prefetch` batches and no more.
"""

from __future__ import annotations

import copy
import logging
import time
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import numpy as np

from aioloader.errors import LoaderError
from aioloader.foundation.concurrency import TURN_S
from aioloader.pipeline.async_map import GRACE_S, GraceScope, is_ours
from aioloader.pipeline.plan import BatchPlan, BatchSchedule, Plan, PlannedBatches

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Awaitable, Callable, Iterator, Sequence

    from aioloader.abc import StreamDataset

# A sample that rollover carries over, its number in its epoch, and the epoch.
CarriedSample = tuple[Any, int, int]

_log = logging.getLogger("aioloader")


class SampleSource:
    """Source of an iterable dataset in one epoch. Opened by the first request.

    Args:
        dataset: opens an iterator over its source.
        epoch: the epoch.
        state: the source's state to resume from; or None.

    Attributes:
        state: the source's state behind the samples so far.
    """

    def __init__(self, dataset: StreamDataset, epoch: int, state: Any) -> None:
        self._dataset = dataset
        self._epoch = epoch
        self._start = self.state = state
        self._iterator: AsyncIterator[Any] | None = None
        self._close: Callable[[], Awaitable[object]] | None = None

    async def request(self) -> Any:
        """Return the next sample.

        Raises:
            StopAsyncIteration: the source has ended.
        """
        if self._iterator is None:
            self._iterator, self._close = await self._dataset.open(self._epoch, self._start)
        return await anext(self._iterator)

    def note_state(self) -> None:
        """Take the state now, if the source has one."""
        if self._dataset.resumable:
            self.state = copy.deepcopy(self._dataset.source_state())

    async def aclose(self) -> None:
        """Close the source, within half a second; also when cancelled."""
        close, self._close = self._close, None
        if close is None:
            return
        with anyio.move_on_after(GRACE_S, shield=True):
            try:
                await close()
            except Exception:
                # The epoch is over, so the error cannot be raised to the caller.
                _log.exception("the source of %s failed while it was closed", type(self._dataset).__name__)


class IterablePlan(Plan, PlannedBatches):
    """Batches of one epoch, made from samples as they come. Used by one task.

    Args:
        dataset: opens an iterator over its source.
        schedule: how samples become batches.
        epoch: the epoch.
        start: how many samples of it were consumed before.
        state: the source's state to resume from; or None.
        carried: samples that rollover brings into the epoch.

    Attributes:
        left_over: the samples carried into the next epoch, after the last batch; a state does not contain them.
    """

    waits = True

    def __init__(
        self,
        dataset: StreamDataset,
        schedule: BatchSchedule,
        *,
        epoch: int,
        start: int = 0,
        state: Any = None,
        carried: Sequence[CarriedSample] | None = None,
    ) -> None:
        self._source = SampleSource(dataset, epoch, state)
        self._schedule = schedule
        self._epoch = epoch
        self._held = list(carried or ())
        self._received = self._consumed = start
        self._number = 0
        self._ended = False
        self._error: BaseException | None = None
        self.left_over: list[CarriedSample] = []
        self._scope = GraceScope()

    def planned(self, remember: Callable[[BatchPlan], bool]) -> PlannedBatches:
        self._remember = remember
        return self

    @contextmanager
    def open(self) -> Iterator[None]:
        # Open between two calls of `next`, because the source may leave its own scopes open when it yields.
        with self._scope:
            yield

    async def next(self) -> BatchPlan | None:
        """Return the next batch; None at the end. It may wait for as long as the source does.

        Raises:
            Exception: the source raised it, after it had yielded the samples of the batches before.
        """
        size = self._schedule.batch_size
        if not self._ended:
            await self._fill()
        if len(self._held) < size and (not self._held or self._schedule.drops):
            if self._error is not None:
                raise self._error
            self.left_over = self._held if self._schedule.last_batch == "rollover" else []
            return None
        taken, self._held = self._held[:size], self._held[size:]
        samples, numbers, epochs = zip(*taken, strict=True)
        indices = np.array(numbers, np.int64)
        position, self._consumed = self._consumed, self._consumed + len(taken)
        plan = BatchPlan(
            self._number,
            position,
            indices,
            epochs=np.array(epochs, np.int64),
            positions=indices,
            consumed=self._consumed,
            samples=list(samples),
            source_state=self._source.state,
        )
        self._number += 1
        self._remember(plan)
        return plan

    async def _fill(self) -> None:
        """Request the samples of a batch from the source, or the remaining ones."""
        yielded_at = time.monotonic()
        try:
            while len(self._held) < self._schedule.batch_size:
                sample = await self._scope.run(self._source.request())
                # Ranks have different numbers, so that their samples draw different random numbers.
                number = self._received * self._schedule.world + self._schedule.rank
                self._held.append((sample, number, self._epoch))
                self._received += 1
                # After each sample: the state of a source that has ended may be that of its beginning.
                self._source.note_state()
                # A source that never waits must not block the loop.
                if time.monotonic() - yielded_at > TURN_S:
                    await anyio.lowlevel.checkpoint()
                    yielded_at = time.monotonic()
        except StopAsyncIteration:
            self._ended = True
        except BaseException as error:
            if is_ours(error):
                raise
            self._ended = True
            self._error = error
            if not isinstance(error, Exception):
                self._error = LoaderError(f"the dataset's source raised {type(error).__name__}: {error}")
                self._error.__cause__ = error

    async def aclose(self) -> None:
        """Close the source, within half a second; also when cancelled."""
        self._error = None  # breaks the cycle error -> traceback -> frame -> plan
        await self._source.aclose()
