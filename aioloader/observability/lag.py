"""Lag of an event loop as a histogram in a fixed amount of memory (pure)."""

from __future__ import annotations

import math

__all__ = ("Lag",)

_LEAST_LAG_S = 1e-5
_PER_OCTAVE = 4
_LAG_CLASSES = 25 * _PER_OCTAVE  # up to five minutes


class Lag:
    """Histogram of lags, with quantiles accurate to a fifth.

    Attributes:
        max_s: the maximum, in seconds.
        total_s: the sum, in seconds.
    """

    def __init__(self) -> None:
        self._counts = [0] * _LAG_CLASSES
        self._total = 0
        self.max_s = self.total_s = 0.0

    def enter(self, late_s: float, every_s: float) -> None:
        """Add an observation.

        Args:
            late_s: the lag in seconds.
            every_s: interval of the observations. A longer lag hides further observations, which are added too.
        """
        self.max_s = max(self.max_s, late_s)
        self.total_s += late_s
        while True:
            self._counts[self._class(late_s)] += 1
            self._total += 1
            late_s -= every_s
            if late_s <= 0:
                return

    @staticmethod
    def _class(late_s: float) -> int:
        if late_s <= _LEAST_LAG_S:
            return 0
        return min(_LAG_CLASSES - 1, int(_PER_OCTAVE * math.log2(late_s / _LEAST_LAG_S)) + 1)

    def quantile(self, share: float) -> float | None:
        """Return the lag that `share` (0 to 1) of the observations do not exceed; None without observations."""
        if not self._total:
            return None
        left = math.ceil(share * self._total)
        number = -1
        while left > 0:
            number += 1
            left -= self._counts[number]
        return min(self.max_s, _LEAST_LAG_S * 2 ** (number / _PER_OCTAVE))
