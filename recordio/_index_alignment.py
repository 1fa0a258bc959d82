"""Alignment of records that are no longer at the offsets of an index, by the distances between them. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

import numpy as np

if TYPE_CHECKING:
    from numpy.typing import NDArray

COMPARED: Final = 8
"""This many distances in a row identify a place."""
_FACTOR: Final = np.uint64(0x9E3779B97F4A7C15)


def is_member(values: NDArray[np.int64], ordered: NDArray[np.int64]) -> NDArray[np.bool_]:
    """Test for each number whether it is among others.

    Args:
        values: int64 (n,).
        ordered: int64 (m,), ascending.

    Returns:
        bool (n,).
    """
    if not len(ordered):
        return np.zeros(len(values), bool)
    place = np.minimum(np.searchsorted(ordered, values), len(ordered) - 1)
    found: NDArray[np.bool_] = ordered[place] == values
    return found


class IndexAlignment:
    """Search for the offsets of an index at which records have the same distances.

    Runs of distances are looked up by a checksum, so that each gap of many in a file of many records takes little time.

    Args:
        ordered: Offsets of the index, ascending, each once.
    """

    def __init__(self, ordered: NDArray[np.int64]) -> None:
        self._offsets: NDArray[np.int64] = np.asarray(ordered, dtype=np.int64)
        self._steps: NDArray[np.int64] = np.diff(self._offsets)
        self._sums, self._places = self._offsets[:0].view(np.uint64), np.empty(0, np.intp)
        if len(self._steps) >= COMPARED:
            sums = self._checksums(self._steps)
            self._places = np.argsort(sums, kind="stable")
            self._sums = sums[self._places]

    @staticmethod
    def _checksums(steps: NDArray[np.int64]) -> NDArray[np.uint64]:
        count = len(steps) - COMPARED + 1
        total = np.zeros(count, np.uint64)
        for number in range(COMPARED):
            total = total * _FACTOR + steps[number : number + count].view(np.uint64)
        return total

    def nearest_shift(self, starts: NDArray[np.int64], last: int, shift: int) -> int:
        """Return the shift, nearest to the old one, under which the index has the next records; else the old one.

        Args:
            starts: Offsets of the next records in the file, up to `COMPARED` + 1 of them.
            last: Offset in the index that is used; only greater ones count.
            shift: The old shift.
        """
        steps = np.diff(starts)
        if len(steps) == COMPARED:
            wanted = self._checksums(steps)[0]
            low = int(np.searchsorted(self._sums, wanted))
            high = int(np.searchsorted(self._sums, wanted, "right"))
            places = self._places[low:high]
        else:  # the end of the file is near
            count = max(0, len(self._offsets) - len(steps))
            fits = np.ones(count, bool)
            for number, step in enumerate(steps):
                fits &= self._steps[number : number + count] == step
            places = np.flatnonzero(fits)
        places = places[int(np.searchsorted(places, np.searchsorted(self._offsets, last, "right"))) :]
        first = int(starts[0])
        expected = first - shift
        near = int(np.searchsorted(places, np.searchsorted(self._offsets, expected)))
        found = [
            first - int(self._offsets[place])
            for place in places[max(0, near - 1) : near + 1]
            if np.array_equal(self._steps[place : place + len(steps)], steps)
        ]
        return min(found, key=lambda fit: abs(fit - shift), default=shift)
