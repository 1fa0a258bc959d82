"""How late an event loop is: a task that wants to run every millisecond, and by how much it missed."""

from __future__ import annotations

from time import perf_counter
from typing import NamedTuple

import anyio
import numpy as np

__all__ = ("Lag", "LoopLag")


class Lag(NamedTuple):
    """Lateness of a task in milliseconds: the median, the 99th percentile, the greatest; and the number of ticks."""

    p50_ms: float
    p99_ms: float
    max_ms: float
    ticks: int


class LoopLag:
    """Collects the lateness of one loop; run `watch` in a task group beside the work and cancel it at the end.

    Args:
        tick_s: seconds between ticks.
    """

    def __init__(self, tick_s: float = 0.001) -> None:
        self._tick_s = tick_s
        self._late: list[float] = []

    async def watch(self) -> None:
        """Tick until cancelled."""
        while True:
            due = perf_counter() + self._tick_s
            await anyio.sleep(self._tick_s)
            self._late.append(perf_counter() - due)

    def result(self) -> Lag:
        """What was seen so far; zeros where nothing was."""
        if not self._late:
            return Lag(0.0, 0.0, 0.0, 0)
        late = np.asarray(self._late) * 1e3
        p50, p99 = np.percentile(late, (50, 99))
        return Lag(float(p50), float(p99), float(late.max()), len(late))
