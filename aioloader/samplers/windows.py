"""An order for data that are slow to read here and there: chunks of neighbours, several of them mixed at a time.

Rule: the range, as a ring, is cut into chunks of neighbours, in each epoch from another place on. The chunks are put
in a random order, and each stretch of `shuffle_window` indices of the result is mixed. A window holds 16 chunks, so
its records lie in 16 to 19 stretches of the file (in more where it is below 240 and no multiple of 16), and a chunk's
records are read close together in time. The rest that fills no chunk comes in the last window. Chunks and windows are
computed where they are asked for: memory is that of one window.

What it costs: two samples of a window come from the same chunk, and are neighbours in the file, with a probability of
1/16, where a full shuffle has almost none. A set that is sorted by class should be packed in random order, or have
chunks much shorter than its classes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from aioloader.foundation.validation import require, whole_number
from aioloader.rng import CHOICE_DOMAIN, TURN_DOMAIN, Rng
from aioloader.samplers.permutation import permute

if TYPE_CHECKING:
    from aioloader.foundation.types import IntArray

__all__ = ("CHUNKS_OF_A_WINDOW", "Windows")

CHUNKS_OF_A_WINDOW = 16


class Windows:
    """The order of each epoch over range(length).

    Args:
        length: number of indices.
        window: indices that are mixed with each other, at least 16.

    Attributes:
        window: as given.

    Raises:
        ValueError: `window` is too small.
    """

    def __init__(self, length: int, window: int) -> None:
        window = whole_number("shuffle_window", window)
        require(
            window >= CHUNKS_OF_A_WINDOW,
            f"shuffle_window must be at least {CHUNKS_OF_A_WINDOW}, got {window}",
        )
        self._length = length
        self.window = window
        self._chunk = window // CHUNKS_OF_A_WINDOW

    def order(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        """The indices at positions start <= p < stop of an epoch, int64 (stop - start,)."""
        if start == stop:
            return np.empty(0, np.int64)
        turn = Rng(seed, epoch, 0, TURN_DOMAIN).integers(self._length)
        parts = []
        for number in range(start // self.window, (stop - 1) // self.window + 1):
            begin = number * self.window
            size = min(self.window, self._length - begin)
            low, high = max(start, begin) - begin, min(stop, begin + size) - begin
            places = begin + _window_order(seed, epoch, number, size)[low:high]
            parts.append((self._at(seed, epoch, places, begin, begin + size) + turn) % self._length)
        return np.concatenate(parts)

    def _at(self, seed: int, epoch: int, places: IntArray, begin: int, end: int) -> IntArray:
        """What stands at places of the row of chunks, all of them in [begin, end); counted from the turn."""
        chunk = self._chunk
        whole = self._length // chunk
        first = begin // chunk
        chunks = permute(seed, epoch, whole, min(first, whole), min(-(-end // chunk), whole))
        if end > whole * chunk:  # the rest that fills no chunk stands last
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
