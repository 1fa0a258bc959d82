"""Adaptive limit of the number of requests in flight, and the limiter that enforces it.

The limit rises while more requests cost no latency and falls when the server is overloaded. The rule: every response
that took about as long as responses take when few are in flight adds one (so the limit doubles in the time of one
response). A response that took several times as long adds nothing and, at most once in the time of a response, cuts the
limit by a tenth; from then on the limit grows by a few in the time of one response. A server that repeatedly reports
that it is busy cuts the limit by a third. Single errors cut nothing.
"""

from __future__ import annotations

import asyncio
from collections import deque

_SLOW = 3.0
_STEP = 16.0
_FORGET_PER_S = 0.001
_BUSY_SHARE = 0.1
_MEMORY = 1 / 256


class AdaptiveLimit:
    """Number of requests that may be in flight. Pure.

    Args:
        start: at first.
        least, most: its bounds.
    """

    def __init__(self, start: int = 32, least: int = 16, most: int = 256) -> None:
        self._least = least
        self._most = most
        self._limit = float(start)
        self._base_s = float("inf")
        self._busy = 0.0
        self._cut_at = float("-inf")
        self._answered_at = float("inf")

    @property
    def limit(self) -> int:
        """Return the number of requests that may be in flight now."""
        return int(self._limit)

    @property
    def at_most(self) -> bool:
        """Return whether the limit is at its upper bound."""
        return self._limit >= self._most

    def answered(self, latency_s: float, now: float, in_flight: int, answers: int = 1) -> None:
        """Record that a response began to arrive.

        Args:
            latency_s: seconds from the request to its first bytes.
            now: a monotonic clock, seconds.
            in_flight: requests in flight; a limit that is not used up is not raised.
            answers: number of responses that this one represents: the first bytes of the others were not observed.
        """
        self._busy -= self._busy * min(1.0, answers * _MEMORY)
        forgotten = 1.0 + _FORGET_PER_S * max(0.0, now - self._answered_at)
        self._answered_at = now
        # At the lower bound our own requests do not delay each other: this is how long responses take now.
        at_least = self._limit <= self._least
        self._base_s = latency_s if at_least else min(latency_s, self._base_s * forgotten)
        # Below a few milliseconds this process takes the time, not the server.
        if latency_s <= max(_SLOW * self._base_s, self._base_s + 0.01):
            if in_flight >= self._limit / 2 and self._busy <= _BUSY_SHARE:
                step = 1.0 if self._cut_at == float("-inf") else _STEP / self._limit
                self._limit = min(self._most, self._limit + answers * step)
        else:
            self._cut(0.9, now, latency_s)

    def busy(self, now: float) -> None:
        """Record that the server reported overload, or did not answer at all."""
        self._busy += (1.0 - self._busy) * _MEMORY
        if self._busy > _BUSY_SHARE:
            self._cut(2 / 3, now, self._base_s if self._base_s < 60 else 1.0)

    def _cut(self, factor: float, now: float, pause_s: float) -> None:
        if now - self._cut_at >= pause_s:
            self._cut_at = now
            self._limit = max(self._least, self._limit * factor)


class Limiter:
    """Limiter that grants requests in the order in which they wait. Used from one event loop at a time.

    Args:
        adaptive_limit: the most requests in flight.

    Attributes:
        taken: requests in flight.
    """

    def __init__(self, adaptive_limit: AdaptiveLimit) -> None:
        self._adaptive_limit = adaptive_limit
        self._waiting: deque[asyncio.Future[None]] = deque()
        self.taken = 0

    async def acquire(self) -> None:
        """Wait until one more request may be sent. Nothing is acquired on cancellation."""
        if self.taken < self._adaptive_limit.limit and not self._waiting:
            self.taken += 1
            return
        granted = asyncio.get_running_loop().create_future()
        self._waiting.append(granted)
        try:
            await granted
        except BaseException:
            if granted.done() and not granted.cancelled():
                self.release()
            elif granted in self._waiting:
                self._waiting.remove(granted)
            raise

    def release(self) -> None:
        """Grant the place of a finished request to those that wait."""
        self.taken -= 1
        while self._waiting and self.taken < self._adaptive_limit.limit:
            granted = self._waiting.popleft()
            if not granted.done():  # else its waiter was cancelled and is about to remove it
                self.taken += 1
                granted.set_result(None)
