"""Sampler that draws indices in proportion to weights."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.validation import require
from aioloader.rng import CHOICE_DOMAIN, Rng
from aioloader.samplers.base import SeededSampler, epoch_length

if TYPE_CHECKING:
    import numpy.typing as npt

    from aioloader.foundation.types import IntArray

_WORDS = 4096
_TO_UNIT = 2.0**-53


class WeightedRandomSampler(SeededSampler):
    """Index i with a probability in proportion to weights[i].

    Args:
        weights: (n,), none negative; they need not add up to 1.
        num_samples: indices of an epoch; None: the number of weights.
        replacement: draw each index from all again. False: each index at most once in an epoch; the larger its weight,
            the earlier it tends to come.
        seed: see `SeededSampler`.

    Raises:
        ValueError: a weight is negative or not a number, all are zero, or without replacement there are fewer indices
            with a weight than `num_samples`.

    Sources: with replacement, the inverse of the summed weights. Without, Efraimidis and Spirakis, "Weighted random
    sampling with a reservoir", 2006.
    """

    def __init__(
        self,
        weights: Any,
        num_samples: int | None = None,
        replacement: bool = True,
        seed: int | None = None,
    ) -> None:
        super().__init__(seed)
        table: npt.NDArray[np.float64] = np.array(weights, np.float64)
        require(
            table.ndim == 1 and bool(np.isfinite(table).all()) and bool((table >= 0).all()),
            "weights must be numbers of the shape (n,), none of them negative",
        )
        require(bool(table.any()), "at least one weight must be more than 0")
        self._length = epoch_length(num_samples, len(table))
        possible = int(np.count_nonzero(table))
        require(
            replacement or self._length <= possible,
            f"without replacement there are {possible} indices to draw, fewer than num_samples={self._length}",
        )
        self._replacement = replacement
        self._weights = table
        self._kept: tuple[int, int, IntArray] | None = None  # for the blocks of the epoch in progress
        self._sums: npt.NDArray[np.float64] = np.cumsum(table / table.max())

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        self._check_stretch(start, stop)
        if start == stop:
            return np.empty(0, np.int64)
        if not self._replacement:
            return self._without_replacement(seed, epoch)[start:stop].copy()
        first, last = start // _WORDS, (stop - 1) // _WORDS
        words = np.concatenate(
            [Rng(seed, epoch, block, CHOICE_DOMAIN).words(_WORDS) for block in range(first, last + 1)]
        )[start - first * _WORDS : stop - first * _WORDS]
        drawn = (words >> np.uint64(11)).astype(np.float64) * (_TO_UNIT * self._sums[-1])
        found = np.searchsorted(self._sums, drawn, side="right")
        # Rounding may reach the end of the last weight, where no index is left.
        result: IntArray = np.minimum(found, np.searchsorted(self._sums, self._sums[-1])).astype(np.int64)
        return result

    def _without_replacement(self, seed: int, epoch: int) -> IntArray:
        """Return the indices of an epoch in the order in which they are drawn without replacement."""
        if self._kept is None or self._kept[:2] != (seed, epoch):
            words = Rng(seed, epoch, 0, CHOICE_DOMAIN).words(len(self._weights))
            uniform = ((words >> np.uint64(11)).astype(np.float64) + 0.5) * _TO_UNIT
            with np.errstate(divide="ignore"):
                waiting = -np.log(uniform) / self._weights
            order = np.argsort(waiting, kind="stable")[: self._length].astype(np.int64, copy=False)
            self._kept = (seed, epoch, order)
        return self._kept[2]
