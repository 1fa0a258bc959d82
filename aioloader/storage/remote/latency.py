"""Latencies of requests: the usual ones, late ones, and the largest gap that is cheaper to read than to skip. Pure."""

from __future__ import annotations

from collections import deque

_KEPT = 512
_FEW = 20
_UNKNOWN_LATE_S = 0.5
_LATE_PERCENTILE = 0.98
_SORT_EVERY = 32

_LEAST_GAP = 16 << 10
_MOST_GAP = 1 << 20
_UNKNOWN_GAP = 64 << 10


class Latencies:
    """Latencies of the latest requests that were answered.

    Attributes:
        late_s: seconds after which a request is late: longer than nearly all of the latest ones took.
    """

    def __init__(self) -> None:
        self._first: deque[float] = deque(maxlen=_KEPT)
        self._whole: deque[float] = deque(maxlen=_KEPT)
        self.late_s = _UNKNOWN_LATE_S
        self._usual_first_s = 0.0
        self._due = _FEW
        self._nbytes = 0.0
        self._body_s = 0.0

    def add(self, first_s: float | None, whole_s: float, nbytes: int) -> None:
        """Add a request that was answered.

        Args:
            first_s: seconds to the first bytes of the answer; None if they were not observed.
            whole_s: seconds to its last.
            nbytes: its bytes.
        """
        self._whole.append(whole_s)
        if first_s is not None:
            self._first.append(first_s)
            # Moving averages over some dozens of responses, of bytes and time separately: long bodies weigh more.
            self._nbytes += (nbytes - self._nbytes) / 32
            self._body_s += (max(whole_s - first_s, 1e-6) - self._body_s) / 32
        self._due -= 1
        if self._due <= 0:
            self._due = _SORT_EVERY
            ordered = sorted(self._whole)
            self._usual_first_s = _percentile(sorted(self._first), 0.5) if self._first else 0.0
            self.late_s = max(
                1.5 * _percentile(ordered, _LATE_PERCENTILE), 2 * _percentile(ordered, 0.5), 0.02
            )

    def percentile(self, share: float) -> float | None:
        """Return the seconds to the last byte that a share of the latest requests did not exceed; None without any."""
        return _percentile(sorted(self._whole), share) if self._whole else None

    @property
    def known(self) -> bool:
        """Return whether there were enough responses to estimate the usual latency."""
        return len(self._whole) >= _FEW

    def late_for(self, nbytes: int) -> float:
        """Return `late_s` for a request of `nbytes` bytes; one that is larger than usual has more time."""
        surplus = max(0.0, nbytes - self._nbytes)
        return self.late_s + 2 * surplus * self._body_s / max(self._nbytes, 1.0)

    @property
    def gap_bytes(self) -> int:
        """Return the bytes that one connection, as busy as now, receives while another request would wait."""
        if not self.known:
            return _UNKNOWN_GAP
        worth = self._usual_first_s * self._nbytes / max(self._body_s, 1e-6)
        return int(min(_MOST_GAP, max(_LEAST_GAP, worth)))


def _percentile(ordered: list[float], share: float) -> float:
    return ordered[min(len(ordered) - 1, int(share * len(ordered)))]
