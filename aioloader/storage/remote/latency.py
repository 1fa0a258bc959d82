"""How long requests take: what is usual, what is late, and how large a gap is cheaper to read than to skip. Pure."""

from __future__ import annotations

from collections import deque

__all__ = ("Latencies",)

_KEPT = 512
_FEW = 20
_UNKNOWN_LATE_S = 0.5
_LATE_PERCENTILE = 0.98
_SORT_EVERY = 32

_LEAST_GAP = 16 << 10
_MOST_GAP = 1 << 20
_UNKNOWN_GAP = 64 << 10


class Latencies:
    """The latest requests that were answered."""

    def __init__(self) -> None:
        self._first: deque[float] = deque(maxlen=_KEPT)
        self._whole: deque[float] = deque(maxlen=_KEPT)
        self._late_s = _UNKNOWN_LATE_S
        self._usual_first_s = 0.0
        self._due = _FEW
        self._nbytes = 0.0
        self._body_s = 0.0

    def add(self, first_s: float | None, whole_s: float, nbytes: int) -> None:
        """A request was answered.

        Args:
            first_s: seconds to the first bytes of the answer; None where nobody saw them come.
            whole_s: seconds to its last.
            nbytes: its bytes.
        """
        self._whole.append(whole_s)
        if first_s is not None:
            self._first.append(first_s)
            # A moving average over some dozens of answers, by bytes and by time apart: long bodies weigh more.
            self._nbytes += (nbytes - self._nbytes) / 32
            self._body_s += (max(whole_s - first_s, 1e-6) - self._body_s) / 32
        self._due -= 1
        if self._due <= 0:
            self._due = _SORT_EVERY
            ordered = sorted(self._whole)
            self._usual_first_s = _percentile(sorted(self._first), 0.5) if self._first else 0.0
            self._late_s = max(
                1.5 * _percentile(ordered, _LATE_PERCENTILE), 2 * _percentile(ordered, 0.5), 0.02
            )

    def percentile(self, share: float) -> float | None:
        """Seconds to the last byte that this share of the latest requests did not exceed; None before the first."""
        return _percentile(sorted(self._whole), share) if self._whole else None

    @property
    def known(self) -> bool:
        """Whether enough was answered to tell what is usual."""
        return len(self._whole) >= _FEW

    @property
    def late_s(self) -> float:
        """Seconds after which a request is a straggler: beyond nearly all of the latest ones."""
        return self._late_s

    def late_for(self, nbytes: int) -> float:
        """The same for a request of some size; one that is larger than usual has more time."""
        surplus = max(0.0, nbytes - self._nbytes)
        return self._late_s + 2 * surplus * self._body_s / max(self._nbytes, 1.0)

    @property
    def gap_bytes(self) -> int:
        """Unwanted bytes that arrive, in one stream as busy as now, in the time that another request would wait."""
        if not self.known:
            return _UNKNOWN_GAP
        worth = self._usual_first_s * self._nbytes / max(self._body_s, 1e-6)
        return int(min(_MOST_GAP, max(_LEAST_GAP, worth)))


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
