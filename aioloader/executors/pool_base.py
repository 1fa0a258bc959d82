"""Executors whose workers several epochs share: one epoch at a time tends the workers, the others stand by.

Chunks wait in one queue, those of the earliest batch first.
"""

from __future__ import annotations

import heapq
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import anyio

from aioloader.executors.retry import Attempt, BatchRun
from aioloader.foundation.concurrency import Notification, deferred

if TYPE_CHECKING:
    from collections.abc import AsyncIterator, Sequence

    from aioloader.executors.retry import Died, Unreadable
    from aioloader.foundation.types import Chunk, ChunkResult

__all__ = ("PoolExecutor",)

_DRAIN_S = 0.25


class PoolExecutor:
    """Base of executors that tend workers from within an epoch. A subclass sets `_drained` when a chunk called off is
    over, and `_fatal` when no worker can be had any more.

    Args:
        timeout: seconds without progress after which a worker is ended.
    """

    def __init__(self, timeout: float) -> None:
        self.timeout = timeout
        self._numbers = itertools.count(1)
        self._queue: list[tuple[int, int, Attempt]] = []
        self._fatal: BaseException | None = None
        self._drained = Notification()
        self._leader: anyio.Lock | None = None
        self._users = 0

    def _begin(self) -> None:
        """The first epoch begins, perhaps in another event loop than the last one."""
        self._leader = anyio.Lock()
        self._drained = Notification()

    async def _lead(self) -> None:
        """Tend the workers until cancelled."""
        raise NotImplementedError(f"{type(self).__name__} defines no _lead()")

    @property
    def _draining(self) -> bool:
        """Whether chunks that were called off are not over yet."""
        raise NotImplementedError(f"{type(self).__name__} defines no _draining")

    def _assign(self) -> None:
        """Hand queued chunks to workers that are free."""
        raise NotImplementedError(f"{type(self).__name__} defines no _assign()")

    def _call_off(self, attempt: Attempt) -> None:
        """Nobody waits for an attempt any more: have it end."""
        raise NotImplementedError(f"{type(self).__name__} defines no _call_off()")

    def _resolve(self, attempt: Attempt, outcome: ChunkResult | Died | Unreadable | BaseException) -> None:
        """An attempt is over."""
        raise NotImplementedError(f"{type(self).__name__} defines no _resolve()")

    @asynccontextmanager
    async def serving(self) -> AsyncIterator[None]:
        """See `aioloader.abc.Executor.serving`.

        Several epochs may serve at once: one of them leads, the others stand by.
        """
        if self._users == 0:
            self._begin()
        self._users += 1
        try:
            async with anyio.create_task_group() as tasks:
                tasks.start_soon(deferred(self._take_turns))
                yield
                tasks.cancel_scope.cancel()
        finally:
            # Chunks called off are over within one sample: wait for them a moment, so that their memory is
            # free for the next epoch. Those that take longer are collected when the workers are next served.
            with anyio.move_on_after(_DRAIN_S, shield=True):
                async with anyio.create_task_group() as tasks:
                    if self._draining:
                        tasks.start_soon(deferred(self._take_turns))
                    while self._draining:
                        await self._drained.wait()
                    tasks.cancel_scope.cancel()
            self._users -= 1

    async def _take_turns(self) -> None:
        assert self._leader is not None
        async with self._leader:
            await self._lead()

    # -- chunks ------------------------------------------------------------------------------------------------------

    async def run(self, chunks: Sequence[Chunk]) -> ChunkResult:
        """See `aioloader.abc.Executor.run`."""
        run = BatchRun(self._submit, self.timeout)
        run.start(list(chunks))
        try:
            return await run.wait()
        except BaseException:
            for attempt in run.abandon():
                self._call_off(attempt)
            raise

    def _submit(self, part: Chunk, way: Any) -> None:
        attempt = Attempt(next(self._numbers), part, way)
        way.attempt = attempt
        if self._fatal is not None:
            way.finish(self._fatal)
        else:
            heapq.heappush(self._queue, (part.batch, attempt.number, attempt))
            self._assign()

    def _any_queued(self) -> bool:
        """Whether a chunk waits that somebody waits for."""
        while self._queue and self._queue[0][2].abandoned:
            heapq.heappop(self._queue)
        return bool(self._queue)

    def _next_queued(self) -> Attempt:
        return heapq.heappop(self._queue)[2]

    def _fail_queued(self, error: BaseException) -> BaseException:
        """No chunk can be worked on any more; gives what is told of it: the first error."""
        self._fatal = self._fatal or error
        queued, self._queue = self._queue, []
        for _, _, attempt in queued:
            if not attempt.abandoned:
                self._resolve(attempt, self._fatal)
        return self._fatal

    @property
    def queued(self) -> int:
        """Chunks that wait for a worker."""
        return len(self._queue)
