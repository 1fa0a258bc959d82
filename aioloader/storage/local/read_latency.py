"""How long reads of local files wait, as measured in this run: slow disks and network file systems are told by that.

Where a read waits for long, what is wanted is asked for side by side, and a gap between two records is read along if
that takes no longer than another read would wait. Pure.
"""

from __future__ import annotations

__all__ = ("ReadLatency",)

LEAST_GAP_BYTES = 16 << 10
_SMALL_GAP_BYTES = 64 << 10
_MOST_GAP_BYTES = 1 << 20
_SLOW_READ_S = 5e-4
# A page that is in memory, or on a good disk, is there sooner; then nothing is known of the disk.
_WAITED_S = 2e-4
_MEMORY = 1 / 4
_COPIED_BYTES_PER_S = 1e9


class ReadLatency:
    """Moving averages, fed from several threads; an update that is lost does no harm.

    Attributes:
        read_s: seconds that a read waited, on average over the latest calls; 0 before the first.
        ever: reads were slow at some time.
    """

    def __init__(self) -> None:
        self.read_s = 0.0
        self.ever = False
        self._gap = 0.0

    def read(self, seconds: float, count: int, nbytes: int) -> None:
        """Reads that one thread made one after the other.

        Args:
            seconds: for all of them.
            count: how many.
            nbytes: bytes of all; to copy them is no waiting.
        """
        if count:
            each = max(1e-9, seconds - nbytes / _COPIED_BYTES_PER_S) / count
            self.read_s += (each - self.read_s) * _MEMORY if self.read_s else each
            self.ever = self.ever or self.slow

    @property
    def slow(self) -> bool:
        """Whether reads wait for something: one takes half a millisecond or more, or did so a moment ago."""
        return self.read_s > _SLOW_READ_S

    def probed(self, first_s: float, rest_s: float, rest_nbytes: int) -> None:
        """A stretch was read that nobody had announced.

        Args:
            first_s: seconds to its first page.
            rest_s: seconds for what followed.
            rest_nbytes: bytes of that.
        """
        if first_s < _WAITED_S or not rest_nbytes:
            return
        gap = min(_MOST_GAP_BYTES, first_s * rest_nbytes / max(rest_s, 1e-9))
        self._gap += (gap - self._gap) * _MEMORY if self._gap else gap

    def gap_bytes(self, mean_nbytes: float) -> int:
        """Unwanted bytes that are read along, at most, rather than reading twice.

        Args:
            mean_nbytes: of the items that are wanted: a gap as long as an item doubles what is read, at worst.
        """
        return int(max(LEAST_GAP_BYTES, min(self._gap, max(_SMALL_GAP_BYTES, mean_nbytes))))
