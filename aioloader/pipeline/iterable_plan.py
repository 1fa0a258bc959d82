"""Batches of samples that come one after the other, from an async iterable.

Samples are asked for only while there is room for their batch (`aioloader.pipeline.limits`), so a source runs ahead
of the caller by `prefetch` batches and no more.
"""

from __future__ import annotations

import copy
import logging
import time
from typing import TYPE_CHECKING, Any

import anyio
import anyio.lowlevel
import numpy as np

from aioloader.errors import LoaderError
from aioloader.pipeline.cancellation import is_ours
from aioloader.pipeline.grace_scope import GRACE_S, GraceScope
from aioloader.pipeline.plan import BatchPlan

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("StreamPlan",)

_log = logging.getLogger("aioloader")
_YIELD_S = 0.002


class StreamPlan:
    """The batches of one epoch. Used by one task.

    Args:
        dataset: gives its iterator by `open` (`aioloader.datasets.iterable.IterableDataset`).
        batch_size: samples of a batch.
        last_batch: "keep", "discard" or "rollover".
        epoch: the epoch.
        start: how many samples of it were consumed before.
        state: the source's own, to go on from; or None.
        carried: (sample, number, epoch) of each that rollover brings into it.

    Attributes:
        left_over: the same for the next epoch, after the last batch.
        told: called with every batch.
        once: inside of it `following` is called. It stays open between two calls, because the source may leave scopes
            of its own open when it yields.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int,
        last_batch: str,
        epoch: int,
        start: int = 0,
        state: Any = None,
        carried: list[tuple[Any, int, int]] | None = None,
    ) -> None:
        self._dataset = dataset
        self._batch_size = batch_size
        self._keeps = last_batch == "keep"
        self._carries = last_batch == "rollover"
        self._epoch = epoch
        self._state = self._behind = state
        self._held = list(carried or ())
        self._came = self._consumed = start
        self._number = 0
        self._iterator: Any = None
        self._close: Any = None
        self._ended = False
        self._error: BaseException | None = None
        self.left_over: list[tuple[Any, int, int]] = []
        self.told: Callable[[BatchPlan], None] | None = None
        self.once = GraceScope()

    async def following(self) -> BatchPlan | None:
        """The next batch; None at the end. It may wait for as long as the source does.

        Raises:
            Exception: what the source raised, after the batches that it had given before.
        """
        if not self._ended:
            await self._fill()
        if len(self._held) < self._batch_size and not (self._held and self._keeps):
            if self._error is not None:
                raise self._error
            self.left_over = self._held if self._carries else []
            return None
        taken, self._held = self._held[: self._batch_size], self._held[self._batch_size :]
        samples, numbers, epochs = zip(*taken, strict=True)
        position, self._consumed = self._consumed, self._consumed + len(taken)
        plan = BatchPlan(
            self._number,
            position,
            np.array(numbers, np.int64),
            np.array(epochs, np.int64),
            self._consumed,
            samples=list(samples),
            source_state=self._behind,
        )
        self._number += 1
        if self.told is not None:
            self.told(plan)
        return plan

    async def _fill(self) -> None:
        """Ask the source for the samples of a batch, or for what is left."""
        yielded_at = time.monotonic()
        try:
            while len(self._held) < self._batch_size:
                sample = await self.once.run(self._ask())
                self._held.append((sample, self._came, self._epoch))
                self._came += 1
                if self._dataset.resumable:
                    # After each of them: a source that has ended may tell its beginning.
                    self._behind = copy.deepcopy(self._dataset.source_state())
                if time.monotonic() - yielded_at > _YIELD_S:  # what never waits must not hold the loop
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

    async def _ask(self) -> Any:
        if self._iterator is None:
            self._iterator, self._close = await self._dataset.open(self._epoch, self._state)
        return await anext(self._iterator)

    async def aclose(self) -> None:
        """Let go of the source, within half a second; also when cancelled."""
        close, self._close = self._close, None
        self._error = None  # breaks the cycle error -> traceback -> frame -> plan
        if close is None:
            return
        with anyio.move_on_after(GRACE_S, shield=True):
            try:
                await close()
            except Exception:
                # The epoch is over, and nobody is left to be told.
                _log.exception("the source of %s failed while it was closed", type(self._dataset).__name__)

    def carry(self) -> None:
        """What rollover carries over are samples: no part of a state."""
        return None
