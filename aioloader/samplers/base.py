"""What a sampler is, and what one is that can tell any stretch of any epoch."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.validation import require

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.abc import PositionalSampler
    from aioloader.foundation.types import IntArray

__all__ = ("ComputedSampler", "Sampler", "SeededSampler", "order_fingerprint")

_BLOCK = 1 << 14
_TOLD = 4096  # places at either end: both are one block of a loader's first batch


class Sampler:
    """Base of samplers. A subclass gives ``__iter__``, a new pass at each call, and ``__len__``."""

    def __iter__(self) -> Iterator[Any]:
        """The indices of one epoch."""
        raise NotImplementedError

    def __len__(self) -> int:
        """How many indices an epoch has."""
        raise NotImplementedError


class ComputedSampler(Sampler):
    """A sampler whose epochs differ in nothing but (seed, epoch)."""

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        """The indices at positions start <= p < stop of an epoch, int64 (stop - start,).

        Raises:
            ValueError: not 0 <= start <= stop <= len(self).
        """
        raise NotImplementedError

    def _check_stretch(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= len(self):
            raise ValueError(f"positions [{start}, {stop}) do not lie within [0, {len(self)})")

    def _epoch(self, seed: int, epoch: int) -> Iterator[int]:
        length = len(self)
        for start in range(0, length, _BLOCK):
            yield from self.indices(seed, epoch, start, min(start + _BLOCK, length)).tolist()

    def __iter__(self) -> Iterator[int]:
        """The indices of one epoch."""
        return self._epoch(0, 0)


class SeededSampler(ComputedSampler):
    """A sampler with an order of its own for every epoch.

    In a loader the loader's own seed and epoch number decide, so that a run can be repeated and resumed. By itself the
    sampler counts its passes as epochs.

    Args:
        seed: 0 <= seed < 2**64, used when the sampler is iterated by itself; None draws one from the system.
    """

    def __init__(self, seed: int | None = None) -> None:
        require(seed is None or 0 <= seed < 1 << 64, f"seed must lie in [0, 2**64), got {seed}")
        self._seed = int.from_bytes(os.urandom(8), "little") if seed is None else seed
        self._passes = 0

    def __iter__(self) -> Iterator[int]:
        """The indices of the next epoch, counted from 0 by this sampler."""
        epoch, self._passes = self._passes, self._passes + 1
        return self._epoch(self._seed, epoch)


def order_fingerprint(sampler: PositionalSampler) -> str:
    """A short hash of what an order depends on besides seed and epoch.

    Of a sampler that a few numbers describe (a method `description` beside its `indices`) it is that of these. Of
    others it is that of some indices of one epoch: with other weights, labels or ratios they are others. They are the
    first and the last 4,096, so all of an epoch that is not longer than both.

    Args:
        sampler: any that tells stretches of its epochs.

    Returns:
        16 hexadecimal digits.
    """
    kind: Any
    for kind in type(sampler).__mro__:
        if "indices" in vars(kind):
            if "description" in vars(kind):
                return hashlib.sha256(repr(kind.description(sampler)).encode()).hexdigest()[:16]
            break
    n = len(sampler)
    stretches = (0, min(n, _TOLD)), (min(n, max(_TOLD, n - _TOLD)), n)
    indices = np.concatenate([sampler.indices(0, 0, start, stop) for start, stop in stretches])
    return hashlib.sha256(indices.astype("<i8").tobytes()).hexdigest()[:16]
