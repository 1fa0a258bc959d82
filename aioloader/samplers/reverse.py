"""Sampler of all indices from the last to the first."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aioloader.samplers.basic import PositionalSamplerBase, check_count

if TYPE_CHECKING:
    from aioloader.foundation.types import IntArray


class ReverseSampler(PositionalSamplerBase):
    """Every index once, from the last to the first, in each epoch.

    Args:
        length: number of indices.

    Raises:
        TypeError: it is not a whole number.
        ValueError: it is negative.
    """

    def __init__(self, length: int) -> None:
        self._length = check_count("length", length)

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        """Return the indices at positions start <= p < stop, int64 (stop - start,)."""
        self._check_stretch(start, stop)
        return np.arange(self._length - 1 - start, self._length - 1 - stop, -1)
