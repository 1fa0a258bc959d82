"""How many requests to have in flight: more while that costs no latency, fewer when the server is overloaded. Pure.

The rule: every answer that came about as fast as answers come when few are asked for adds one (so the number doubles
in the time of one answer); one that took several times as long adds nothing, and once an answer's time the number is
cut by a tenth; from then on it grows by a few in the time of one answer. A server that says it is busy, again and
again, cuts it by a third. Single errors cut nothing.
"""

from __future__ import annotations

__all__ = ("AdaptiveLimit",)

_SLOW = 3.0
_STEP = 16.0
_FORGET_PER_S = 0.001
_BUSY_SHARE = 0.1
_MEMORY = 1 / 256


class AdaptiveLimit:
    """The number of requests that may be in flight.

    Args:
        start: at first.
        least, most: its bounds.

    Attributes:
        limit: the number now.
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
        """How many may be in flight now."""
        return int(self._limit)

    @property
    def at_most(self) -> bool:
        """Whether as many may be in flight as ever."""
        return self._limit >= self._most

    def answered(self, latency_s: float, now: float, in_flight: int, answers: int = 1) -> None:
        """An answer began to arrive.

        Args:
            latency_s: seconds from the request to its first bytes.
            now: a monotonic clock, seconds.
            in_flight: requests under way; a number that is not used up is no reason to raise it.
            answers: how many it stands for: it is the only one of them whose beginning was seen.
        """
        self._busy -= self._busy * min(1.0, answers * _MEMORY)
        forgotten = 1.0 + _FORGET_PER_S * max(0.0, now - self._answered_at)
        self._answered_at = now
        # At the least number nothing waits for anything of ours: that is how long answers take now.
        at_least = self._limit <= self._least
        self._base_s = latency_s if at_least else min(latency_s, self._base_s * forgotten)
        # Below a few milliseconds it is this process that takes the time, not the server.
        if latency_s <= max(_SLOW * self._base_s, self._base_s + 0.01):
            if in_flight >= self._limit / 2 and self._busy <= _BUSY_SHARE:
                step = 1.0 if self._cut_at == float("-inf") else _STEP / self._limit
                self._limit = min(self._most, self._limit + answers * step)
        else:
            self._cut(0.9, now, latency_s)

    def busy(self, now: float) -> None:
        """The server said that it has too much to do, or did not answer at all."""
        self._busy += (1.0 - self._busy) * _MEMORY
        if self._busy > _BUSY_SHARE:
            self._cut(2 / 3, now, self._base_s if self._base_s < 60 else 1.0)

    def _cut(self, factor: float, now: float, pause_s: float) -> None:
        if now - self._cut_at >= pause_s:
            self._cut_at = now
            self._limit = max(self._least, self._limit * factor)
