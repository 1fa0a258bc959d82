"""Places for requests in flight, given in the order in which they were asked for."""

from __future__ import annotations

import asyncio
from collections import deque
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioloader.storage.remote.adaptive_limit import AdaptiveLimit

__all__ = ("Limiter",)


class Limiter:
    """As many places as a pace allows now. Used from one event loop at a time.

    Args:
        pace: says how many.

    Attributes:
        taken: places taken.
    """

    def __init__(self, pace: AdaptiveLimit) -> None:
        self._pace = pace
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.taken = 0

    async def take(self) -> None:
        """Wait for a place. Nothing is taken on cancellation."""
        if self.taken < self._pace.limit and not self._waiting:
            self.taken += 1
            return
        granted = asyncio.get_running_loop().create_future()
        self._waiting.append(granted)
        try:
            await granted
        except BaseException:
            if granted.done() and not granted.cancelled():
                self.give_back()
            elif granted in self._waiting:
                self._waiting.remove(granted)
            raise

    def give_back(self) -> None:
        """A place is free again."""
        self.taken -= 1
        while self._waiting and self.taken < self._pace.limit:
            granted = self._waiting.popleft()
            if not granted.done():  # else it is about to be taken off by who waited
                self.taken += 1
                granted.set_result(None)
