"""Lag of an event loop in milliseconds, for reports: how late a task is that wants to run every millisecond."""

from __future__ import annotations

from typing import NamedTuple

from aioloader.observability.lag import Lag
from aioloader.pipeline.watchdog import watch_lag


class LagSummary(NamedTuple):
    """Lag in milliseconds: the median, the 99th percentile, the maximum; and the number of ticks."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    ticks: int


class LoopLag:
    """Collector of the lag of one loop. Run `watch` in a task group next to the work, and cancel it at the end."""

    def __init__(self) -> None:
        self._lag = Lag()

    async def watch(self) -> None:
        """Tick every millisecond until cancelled."""
        await watch_lag(self._lag, 0.001, counts_missed=False)

    def result(self) -> LagSummary:
        """Return the lag so far; zeros before the first tick."""
        lag = self._lag
        p50, p99 = (lag.quantile(share) or 0.0 for share in (0.5, 0.99))
        return LagSummary(1e3 * p50, 1e3 * p99, 1e3 * lag.max_s, lag.count)
