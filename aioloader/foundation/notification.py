"""A condition that one or more tasks wait for, set again and again."""

from __future__ import annotations

import anyio

__all__ = ("Notification",)


class Notification:
    """`set` wakes every task that waits now; nothing is remembered, so check the condition before `wait`."""

    __slots__ = ("_events",)

    def __init__(self) -> None:
        self._events: list[anyio.Event] = []

    def set(self) -> None:
        """Wake all waiters. From the loop's thread only."""
        events, self._events = self._events, []
        for event in events:
            event.set()

    async def wait(self) -> None:
        """Wait for the next `set`."""
        # An event of its own for each waiter: nothing of a loop that has ended is left behind.
        event = anyio.Event()
        self._events.append(event)
        try:
            await event.wait()
        finally:
            if event in self._events:
                self._events.remove(event)
