"""Order for data that are slow to read in random order: chunks of neighbours, several of them shuffled at a time.

Rule: the range, as a ring, is cut into chunks of neighbours, in each epoch from another start. The chunks are put in a
random order, and each window of `shuffle_window` indices of the result is shuffled. A window holds 16 chunks, so its
records are in 16 to 19 ranges of the file (in more if it is below 240 and not a multiple of 16), and a chunk's records
are read close together in time. The rest that does not fill a chunk comes in the last window. Chunks and windows are
computed on demand: memory is that of one window.

The cost: two samples of a window are from the same chunk, and are neighbours in the file, with a probability of 1/16;
in a full shuffle the probability is almost 0. A set that is sorted by class should be packed in random order, or have
chunks much shorter than its classes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from aioloader.rng import CHOICE_DOMAIN, TURN_DOMAIN, Rng
from aioloader.samplers.base import check_count
from aioloader.samplers.permutation import permute

if TYPE_CHECKING:
    from aioloader.foundation.types import IntArray

_CHUNKS = 16  # of a window


class Windows:
    """The order of each epoch over range(length).

    Args:
        length: number of indices.
        window: indices that are shuffled together, at least 16.

    Attributes:
        window: as passed.

    Raises:
        ValueError: `window` is too small.
    """

    def __init__(self, length: int, window: int) -> None:
        self._length = length
        self.window = check_count("shuffle_window", window, _CHUNKS)
        self._chunk = self.window // _CHUNKS

    def order(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        """Return the indices at positions start <= p < stop of an epoch, int64 (stop - start,)."""
        if start == stop:
            return np.empty(0, np.int64)
        ring_start = Rng(seed, epoch, 0, TURN_DOMAIN).integers(self._length)
        parts = []
        for number in range(start // self.window, (stop - 1) // self.window + 1):
            begin = number * self.window
            size = min(self.window, self._length - begin)
            low, high = max(start, begin) - begin, min(stop, begin + size) - begin
            places = begin + _window_order(seed, epoch, number, size)[low:high]
            parts.append((self._at(seed, epoch, places, begin, begin + size) + ring_start) % self._length)
        return np.concatenate(parts)

    def _at(self, seed: int, epoch: int, places: IntArray, begin: int, end: int) -> IntArray:
        """Return the indices at places of the sequence of chunks, all in [begin, end), relative to the ring's start."""
        chunk = self._chunk
        whole = self._length // chunk
        first = begin // chunk
        chunks = permute(seed, epoch, whole, min(first, whole), min(-(-end // chunk), whole))
        if end > whole * chunk:  # the rest that does not fill a chunk is last
            chunks = np.append(chunks, whole)
        which, inside = np.divmod(places, chunk)
        result: IntArray = chunks[which - first] * chunk + inside
        return result


@lru_cache(maxsize=4)
def _window_order(seed: int, epoch: int, number: int, size: int) -> IntArray:
    key = int(Rng(seed, epoch, number, CHOICE_DOMAIN).words(1)[0])
    order = permute(key, epoch, size, 0, size)
    order.flags.writeable = False
    return order
