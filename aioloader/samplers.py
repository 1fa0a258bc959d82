"""Which indices, in what order. Gluon's classes, most of them computed instead of stored.

A sampler that has a method ``indices`` can tell any stretch of any epoch in constant memory; the loaders then
shard and resume by arithmetic, without running through what came before. Every sampler can be pickled.
"""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader._checks import require
from aioloader.permutation import permute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aioloader._types import IntArray
    from aioloader.abc import MapDataset

__all__ = (
    "BatchSampler",
    "FilterSampler",
    "IntervalSampler",
    "RandomSampler",
    "Sampler",
    "SequentialSampler",
)

_BLOCK = 1 << 14


class Sampler:
    """Base of samplers. A subclass gives ``__iter__``, a new pass at each call, and ``__len__``."""

    def __iter__(self) -> Iterator[Any]:
        """The indices of one epoch."""
        raise NotImplementedError

    def __len__(self) -> int:
        """How many indices an epoch has."""
        raise NotImplementedError


class _ComputedSampler(Sampler):
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


class SequentialSampler(_ComputedSampler):
    """start, start + 1, ..., start + length - 1.

    Args:
        length: number of indices.
        start: the first one.
    """

    def __init__(self, length: int, start: int = 0) -> None:
        require(length >= 0, f"length must not be negative, got {length}")
        self._length = length
        self._start = start

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        """See `PositionalSampler.indices`; the same in every epoch."""
        self._check_stretch(start, stop)
        return np.arange(self._start + start, self._start + stop, dtype=np.int64)

    def __len__(self) -> int:
        return self._length


class RandomSampler(_ComputedSampler):
    """Every index of range(length) once, in a new random order at each ``iter``.

    In a loader the loader's own seed and epoch number decide the order, so that a run can be repeated and
    resumed. By itself the sampler counts its passes as epochs.

    Args:
        length: number of indices.
        seed: 0 <= seed < 2**64, used when the sampler is iterated by itself; None draws one from the system.
    """

    def __init__(self, length: int, seed: int | None = None) -> None:
        require(length >= 0, f"length must not be negative, got {length}")
        require(seed is None or 0 <= seed < 1 << 64, f"seed must lie in [0, 2**64), got {seed}")
        self._length = length
        self._seed = int.from_bytes(os.urandom(8), "little") if seed is None else seed
        self._passes = 0

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        """See `PositionalSampler.indices`; `aioloader.permutation.permute` gives the order."""
        return permute(seed, epoch, self._length, start, stop)

    def __iter__(self) -> Iterator[int]:
        """The indices in the order of the next epoch, counted from 0 by this sampler."""
        epoch, self._passes = self._passes, self._passes + 1
        return self._epoch(self._seed, epoch)

    def __len__(self) -> int:
        return self._length


class FilterSampler(_ComputedSampler):
    """The indices of the samples that satisfy a condition, in order. Every sample is looked at once, here.

    Args:
        fn: takes a sample (a tuple as one argument) and says whether it is kept.
        dataset: anything with a length and items.
    """

    def __init__(self, fn: Callable[[Any], object], dataset: MapDataset[Any]) -> None:
        kept = (index for index in range(len(dataset)) if fn(dataset[index]))
        self._indices: IntArray = np.fromiter(kept, dtype=np.int64)

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        """See `PositionalSampler.indices`; the same in every epoch."""
        self._check_stretch(start, stop)
        return self._indices[start:stop].copy()

    def __len__(self) -> int:
        return len(self._indices)


class IntervalSampler(_ComputedSampler):
    """0, k, 2k, ..., then 1, 1 + k, ..., and so on for an interval of k.

    Args:
        length: the indices lie in range(length).
        interval: distance of one index to the next, 1 <= interval <= length.
        rollover: begin again at 1, 2, ... until every index was given; False: only the first sweep.
    """

    def __init__(self, length: int, interval: int, rollover: bool = True) -> None:
        require(interval <= length, f"Interval {interval} must be smaller than or equal to length {length}")
        require(interval >= 1, f"interval must be at least 1, got {interval}")
        self._length = length
        self._interval = interval
        self._rollover = rollover

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        """See `PositionalSampler.indices`; the same in every epoch."""
        self._check_stretch(start, stop)
        positions = np.arange(start, stop, dtype=np.int64)
        if not self._rollover:
            return positions * self._interval
        # The first `longer` sweeps have one index more than the others.
        short, longer = divmod(self._length, self._interval)
        border = longer * (short + 1)
        early_sweep, early_step = np.divmod(positions, short + 1)
        late_sweep, late_step = np.divmod(positions - border, short)
        early = positions < border
        sweep = np.where(early, early_sweep, longer + late_sweep)
        step = np.where(early, early_step, late_step)
        result: IntArray = sweep + step * self._interval
        return result

    def __len__(self) -> int:
        return self._length if self._rollover else -(-self._length // self._interval)


class BatchSampler(Sampler):
    """Lists of `batch_size` indices from another sampler.

    Args:
        sampler: gives single indices; has a length.
        batch_size: indices of a batch, at least 1.
        last_batch: what becomes of an incomplete last batch: "keep" gives it as it is, "discard" drops it,
            "rollover" begins the next pass with it. A pass that is left early carries nothing over.

    Raises:
        ValueError: `last_batch` is none of these, or `batch_size` is below 1.
    """

    def __init__(self, sampler: Any, batch_size: int, last_batch: str = "keep") -> None:
        if last_batch not in ("keep", "discard", "rollover"):
            raise ValueError(
                f"last_batch must be one of 'keep', 'discard', or 'rollover', but got {last_batch}"
            )
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.last_batch = last_batch
        self._carried: list[Any] = []

    def __iter__(self) -> Iterator[list[Any]]:
        """The batches of one pass."""
        return self._cut(self.sampler)

    def _cut(self, indices: Iterable[Any]) -> Iterator[list[Any]]:
        batch, self._carried = self._carried, []
        for index in indices:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if not batch:
            return
        if self.last_batch == "keep":
            yield batch
        elif self.last_batch == "rollover":
            self._carried = batch

    def __len__(self) -> int:
        """How many batches the next pass has."""
        count = len(self.sampler)
        if self.last_batch == "keep":
            return -(-count // self.batch_size)
        return (len(self._carried) + count) // self.batch_size
