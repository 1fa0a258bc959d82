"""Backpressure: one number covers everything between the read of a batch and its delivery."""

from __future__ import annotations

from aioloader.foundation.concurrency import Notification

__all__ = ("CapacityLimiter",)


class CapacityLimiter:
    """How many batches may be on their way. Taken in the order of the batches, given back on delivery.

    Args:
        limit: at least 1, so that one batch can always be completed.
    """

    def __init__(self, limit: int) -> None:
        if limit < 1:
            raise ValueError(f"at least one batch must be allowed on its way, got {limit}")
        self.limit = limit
        self.taken = 0
        self._given_back = Notification()

    async def take(self) -> None:
        """Wait for a permit. One task takes all permits of an epoch, so the order is that of the batches."""
        while self.taken >= self.limit:
            await self._given_back.wait()
        self.taken += 1

    def give_back(self) -> None:
        """A batch was delivered, skipped or failed."""
        self.taken -= 1
        self._given_back.set()
