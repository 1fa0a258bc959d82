"""Base classes of samplers, and the fingerprint of an order."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.validation import require, whole_number

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.abc import PositionalSampler
    from aioloader.foundation.types import IntArray

_BLOCK = 1 << 14
_SAMPLED = 4096  # positions at either end: both are one block of a loader's first batch


class Sampler:
    """Base of samplers. A subclass defines ``__iter__``, a new pass at each call, and ``__len__``."""

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the indices of one epoch."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Return the number of indices of an epoch."""
        raise NotImplementedError


class ComputedSampler(Sampler):
    """Base of samplers whose epochs differ in nothing but (seed, epoch). A subclass sets `_length`."""

    _length: int

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        """Return the indices at positions start <= p < stop of an epoch, int64 (stop - start,).

        Raises:
            ValueError: not 0 <= start <= stop <= len(self).
        """
        raise NotImplementedError

    def _check_stretch(self, start: int, stop: int) -> None:
        if not 0 <= start <= stop <= len(self):
            raise ValueError(f"positions [{start}, {stop}) are not within [0, {len(self)})")

    def _epoch(self, seed: int, epoch: int) -> Iterator[int]:
        length = len(self)
        for start in range(0, length, _BLOCK):
            yield from self.indices(seed, epoch, start, min(start + _BLOCK, length)).tolist()

    def __iter__(self) -> Iterator[int]:
        """Iterate over the indices of one epoch."""
        return self._epoch(0, 0)

    def __len__(self) -> int:
        """Return the number of indices of an epoch."""
        return self._length


class SeededSampler(ComputedSampler):
    """Base of samplers with a different order in every epoch.

    In a loader the loader's seed and epoch number determine the order, so that a run can be repeated and resumed. When
    the sampler is iterated alone, it counts its passes as epochs.

    Args:
        seed: 0 <= seed < 2**64, used when the sampler is iterated alone; None draws one from the system.
    """

    def __init__(self, seed: int | None = None) -> None:
        require(seed is None or 0 <= seed < 1 << 64, f"seed must be in [0, 2**64), got {seed}")
        self._seed = int.from_bytes(os.urandom(8), "little") if seed is None else seed
        self._passes = 0

    def __iter__(self) -> Iterator[int]:
        """Iterate over the indices of the next epoch, counted from 0 by this sampler."""
        epoch, self._passes = self._passes, self._passes + 1
        return self._epoch(self._seed, epoch)


def check_count(name: str, value: Any, least: int = 0) -> int:
    """Return `value` as an int.

    Raises:
        TypeError: it is not a whole number.
        ValueError: it is less than `least`; an AssertionError too, as in Gluon.
    """
    count = whole_number(name, value)
    require(count >= least, f"{name} must be at least {least}, got {count}")
    return count


def epoch_length(num_samples: int | None, default: int) -> int:
    """Return the length of an epoch: `num_samples`, or `default` if that is None; raise as `check_count`."""
    return default if num_samples is None else check_count("num_samples", num_samples)


def order_fingerprint(sampler: PositionalSampler) -> str:
    """Hash all that an order depends on, except seed and epoch.

    For a sampler that a few numbers describe (a method `description` in the class that defines `indices`) it is the
    hash of these. For others it is the hash of some indices of one epoch: with other weights, labels or ratios they
    differ. They are the first and the last 4,096, so all of an epoch that is not longer than both.

    Args:
        sampler: any that computes ranges of its epochs.

    Returns:
        16 hexadecimal digits.
    """
    kind: Any = next((kind for kind in type(sampler).__mro__ if "indices" in vars(kind)), object)
    if "description" in vars(kind):
        return hashlib.sha256(repr(kind.description(sampler)).encode()).hexdigest()[:16]
    n = len(sampler)
    stretches = (0, min(n, _SAMPLED)), (min(n, max(_SAMPLED, n - _SAMPLED)), n)
    indices = np.concatenate([sampler.indices(0, 0, start, stop) for start, stop in stretches])
    return hashlib.sha256(indices.astype("<i8").tobytes()).hexdigest()[:16]
