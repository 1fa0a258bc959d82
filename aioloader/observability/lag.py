"""Histogram of the lag of an event loop, in a fixed amount of memory (pure)."""

from __future__ import annotations

import math

_LEAST_LAG_S = 1e-5
_PER_OCTAVE = 8
_LAG_CLASSES = 25 * _PER_OCTAVE  # up to five minutes


class Lag:
    """Histogram of delays; its quantiles are right within a tenth.

    Attributes:
        max_s: the longest delay, in seconds.
        total_s: sum of the delays, in seconds.
        count: number of observations.
    """

    def __init__(self) -> None:
        self._counts = [0] * _LAG_CLASSES
        self.count = 0
        self.max_s = self.total_s = 0.0

    def enter(self, late_s: float, every_s: float) -> None:
        """Add an observation.

        Args:
            late_s: the delay.
            every_s: seconds between two observations. A longer delay hid others, which are added too.
        """
        self.max_s = max(self.max_s, late_s)
        self.total_s += late_s
        while True:
            self._counts[self._class(late_s)] += 1
            self.count += 1
            late_s -= every_s
            if late_s <= 0:
                return

    @staticmethod
    def _class(late_s: float) -> int:
        if late_s <= _LEAST_LAG_S:
            return 0
        return min(_LAG_CLASSES - 1, int(_PER_OCTAVE * math.log2(late_s / _LEAST_LAG_S)) + 1)

    def quantile(self, share: float) -> float | None:
        """Return the delay that `share` (0 to 1) of the observations did not exceed; None without observations."""
        if not self.count:
            return None
        left = math.ceil(share * self.count)
        number = -1
        while left > 0:
            number += 1
            left -= self._counts[number]
        return min(self.max_s, _LEAST_LAG_S * 2 ** (number / _PER_OCTAVE))
