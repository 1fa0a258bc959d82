"""How many may do something at a time, those of the earliest batch first."""

from __future__ import annotations

import heapq
import itertools
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

__all__ = ("PrioritySemaphore",)


class _Waiter:
    __slots__ = ("gone", "let_in")

    def __init__(self) -> None:
        self.let_in = anyio.Event()
        self.gone = False


class PrioritySemaphore:
    """Lets in up to `limit` at a time. Of those that wait the lowest `rank` is next, whoever came first.

    For one event loop's tasks. Where there is room nothing is waited for.

    Args:
        limit: at least 1.
    """

    def __init__(self, limit: int) -> None:
        self._free = limit
        self._waiting: list[tuple[int, int, _Waiter]] = []
        self._arrivals = itertools.count()

    @asynccontextmanager
    async def entered(self, rank: int) -> AsyncIterator[None]:
        """A context inside which one place is taken."""
        if self._free:
            self._free -= 1
        else:
            await self._wait(rank)
        try:
            yield
        finally:
            self._leave()

    async def _wait(self, rank: int) -> None:
        waiter = _Waiter()
        heapq.heappush(self._waiting, (rank, next(self._arrivals), waiter))
        try:
            await waiter.let_in.wait()
        except BaseException:
            if waiter.let_in.is_set():  # and called off at once
                self._leave()
            waiter.gone = True
            raise

    def _leave(self) -> None:
        """Make room; whoever is next has the place at once."""
        while self._waiting:
            _, _, waiter = heapq.heappop(self._waiting)
            if not waiter.gone:
                waiter.let_in.set()
                return
        self._free += 1
