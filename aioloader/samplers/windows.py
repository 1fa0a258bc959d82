"""An order for data that are slow to read here and there: chunks of neighbours, several of them mixed at a time.

Rule: the range is cut into chunks of neighbours. The chunks are put in a random order, and each stretch of
`shuffle_window` indices of the result is mixed. A window holds 16 chunks, so its records lie in 16 or 17 stretches of
the file, and a chunk's records are read close together in time.

What it costs: two samples of a batch come from the same chunk, and are neighbours in the file, with a probability of
1/16, where a full shuffle has almost none. A set that is sorted by class should be packed in random order, or have
chunks much shorter than its classes.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import numpy as np

from aioloader._checks import require
from aioloader.permutation import permute
from aioloader.rng import CHOICE_DOMAIN, Rng

if TYPE_CHECKING:
    from aioloader._types import IntArray

__all__ = ("CHUNKS_OF_A_WINDOW", "Windows")

CHUNKS_OF_A_WINDOW = 16


class Windows:
    """The order of each epoch over range(length).

    Args:
        length: number of indices.
        window: indices that are mixed with each other, at least 16.

    Raises:
        ValueError: `window` is too small.
    """

    def __init__(self, length: int, window: int) -> None:
        require(
            window >= CHUNKS_OF_A_WINDOW,
            f"shuffle_window must be at least {CHUNKS_OF_A_WINDOW}, got {window}",
        )
        self._length = length
        self._window = window
        self._chunk = window // CHUNKS_OF_A_WINDOW
        self._chunks = -(-length // self._chunk)

    def order(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        """The indices at positions start <= p < stop of an epoch, int64 (stop - start,)."""
        if start == stop:
            return np.empty(0, np.int64)
        chunks = _chunk_order(seed, epoch, self._chunks)
        parts = []
        for number in range(start // self._window, (stop - 1) // self._window + 1):
            begin = number * self._window
            size = min(self._window, self._length - begin)
            low, high = max(start, begin) - begin, min(stop, begin + size) - begin
            places = begin + _window_order(seed, epoch, number, size)[low:high]
            parts.append(self._at(chunks, places))
        return np.concatenate(parts)

    def _at(self, chunks: IntArray, places: IntArray) -> IntArray:
        """The indices at places of the sequence of chunks, before windows are mixed."""
        chunk = self._chunk
        missing = self._chunks * chunk - self._length
        if missing:
            # The last chunk of the file is short: what stands behind it has moved up.
            short = int(np.flatnonzero(chunks == self._chunks - 1)[0])
            places = np.where(places >= (short + 1) * chunk - missing, places + missing, places)
        which, inside = np.divmod(places, chunk)
        result: IntArray = chunks[which] * chunk + inside
        return result


@lru_cache(maxsize=4)
def _chunk_order(seed: int, epoch: int, count: int) -> IntArray:
    # One number for each chunk; kept for the blocks of the epochs in progress.
    order = permute(seed, epoch, count, 0, count)
    order.flags.writeable = False
    return order


@lru_cache(maxsize=4)
def _window_order(seed: int, epoch: int, number: int, size: int) -> IntArray:
    key = int(Rng(seed, epoch, number, CHOICE_DOMAIN).words(1)[0])
    order = permute(key, epoch, size, 0, size)
    order.flags.writeable = False
    return order
