"""A condition that one or more tasks wait for, set again and again."""

from __future__ import annotations

import anyio

__all__ = ("Signal",)


class Signal:
    """`set` wakes every task that waits now; nothing is remembered, so check the condition before `wait`."""

    __slots__ = ("_event",)

    def __init__(self) -> None:
        self._event: anyio.Event | None = None

    def set(self) -> None:
        """Wake all waiters. From the loop's thread only."""
        event, self._event = self._event, None
        if event is not None:
            event.set()

    async def wait(self) -> None:
        """Wait for the next `set`."""
        if self._event is None:
            self._event = anyio.Event()
        await self._event.wait()
