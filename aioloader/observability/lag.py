"""How late an event loop was, in a fixed amount of memory (pure)."""

from __future__ import annotations

import math

__all__ = ("Lag",)

_LEAST_LAG_S = 1e-5
_PER_OCTAVE = 4
_LAG_CLASSES = 25 * _PER_OCTAVE  # up to five minutes


class Lag:
    """How late something was, as a histogram: quantiles within a fifth.

    Attributes:
        max_s: the greatest, in seconds.
        total_s: seconds in which it was late.
    """

    def __init__(self) -> None:
        self._counts = [0] * _LAG_CLASSES
        self._total = 0
        self.max_s = self.total_s = 0.0

    def enter(self, late_s: float, every_s: float) -> None:
        """One more observation.

        Args:
            late_s: how late it was.
            every_s: how often one looks. What was later than that hid others, which are entered too.
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
        """What `share` (0 to 1) of the observations did not exceed, or None if there are none."""
        if not self._total:
            return None
        left = math.ceil(share * self._total)
        number = -1
        while left > 0:
            number += 1
            left -= self._counts[number]
        return min(self.max_s, _LEAST_LAG_S * 2 ** (number / _PER_OCTAVE))
