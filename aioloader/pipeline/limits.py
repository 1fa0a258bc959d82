"""Limit of concurrent calls that admits the tasks of the earliest batch first; anyio has none with priorities."""

from __future__ import annotations

import heapq
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator


class _Waiter:
    __slots__ = ("admitted", "cancelled")

    def __init__(self) -> None:
        self.admitted = anyio.Event()
        self.cancelled = False


class PrioritySemaphore:
    """Semaphore that admits the waiter with the lowest `priority` first, regardless of the order of arrival.

    For the tasks of one event loop. A task does not wait while there is room.

    Args:
        limit: maximum number of tasks inside, at least 1.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: list[tuple[int, int, _Waiter]] = []
        self._arrivals = itertools.count()

    @asynccontextmanager
    async def entered(self, priority: int) -> AsyncIterator[None]:
        """Hold one place while the context is open."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(priority)
        try:
            yield
        finally:
            self._leave()

    async def _wait(self, priority: int) -> None:
        waiter = _Waiter()
        heapq.heappush(self._waiting, (priority, next(self._arrivals), waiter))
        try:
            await waiter.admitted.wait()
        except BaseException:
            if waiter.admitted.is_set():  # admitted and cancelled at the same time
                self._leave()
            waiter.cancelled = True
            raise

    def _leave(self) -> None:
        """Free one place; the next waiter gets it at once."""
        while self._waiting:
            _, _, waiter = heapq.heappop(self._waiting)
            if not waiter.cancelled:
                waiter.admitted.set()
                return
        self._free += 1
