"""Places for requests in flight, given in the order in which they were asked for."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from aioloader.storage.remote.pace import Pace

__all__ = ("Slots",)


class Slots:
    """As many places as a pace allows now. Used from one event loop at a time.

    Args:
        pace: says how many.

    Attributes:
        taken: places taken.
    """

    def __init__(self, pace: Pace) -> None:
        self._pace = pace
        self._waiting: deque[anyio.Event] = deque()
        self.taken = 0

    async def take(self) -> None:
        """Wait for a place. Nothing is taken on cancellation."""
        if self.taken < self._pace.limit and not self._waiting:
            self.taken += 1
            return
        granted = anyio.Event()
        self._waiting.append(granted)
        try:
            await granted.wait()
        except BaseException:
            if granted.is_set():
                self.give_back()
            else:
                self._waiting.remove(granted)
            raise

    def give_back(self) -> None:
        """A place is free again."""
        self.taken -= 1
        while self._waiting and self.taken < self._pace.limit:
            self.taken += 1
            self._waiting.popleft().set()
