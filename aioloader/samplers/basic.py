"""Base classes of samplers, samplers that treat all indices alike, batches, and the fingerprint of an order."""

from __future__ import annotations

import hashlib
import os
from typing import TYPE_CHECKING, Any, TypeGuard

import numpy as np

from aioloader.abc import ComputedBatchSampler, PositionalSampler
from aioloader.foundation.protocols import implements
from aioloader.foundation.validation import require, whole_number
from aioloader.samplers.epoch_order import CHUNKS_OF_A_WINDOW, permute, permute_in_windows

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aioloader.abc import MapDataset
    from aioloader.abc import Sampler as SamplerProtocol
    from aioloader.foundation.types import IntArray

_BLOCK = 1 << 14
_SAMPLED = 4096  # positions at either end: both are one block of a loader's first batch


class Sampler:
    """Base of samplers, as in Gluon. Loaders accept any `aioloader.abc.Sampler`.

    A subclass defines ``__iter__``, which begins a new epoch at each call, and ``__len__``.
    """

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the indices of one epoch."""
        raise NotImplementedError

    def __len__(self) -> int:
        """Return the number of indices of an epoch."""
        raise NotImplementedError


class PositionalSamplerBase(Sampler):
    """Base of the samplers that implement `aioloader.abc.PositionalSampler`.

    Their epochs differ in nothing but (seed, epoch). A subclass sets `_length`.
    """

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


class SeededSampler(PositionalSamplerBase):
    """Base of samplers with a different order in every epoch.

    In a loader the loader's seed and epoch number determine the order, so that a run can be repeated and resumed. When
    the sampler is iterated alone, it counts its iterations as epochs.

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


def is_positional(sampler: object) -> TypeGuard[PositionalSampler]:
    """Return True if a sampler computes its indices; one whose class overrides ``__iter__`` alone is iterated."""
    return implements(sampler, PositionalSampler, instead_of="__iter__")


def is_computed(batch_sampler: object) -> TypeGuard[ComputedBatchSampler]:
    """Return True if a batch sampler computes its batches; one whose class overrides ``__iter__`` alone is iterated."""
    return implements(batch_sampler, ComputedBatchSampler, instead_of="__iter__")


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


def description_fingerprint(description: tuple[Any, ...]) -> str:
    """Return the hash of a sampler's description, 16 hexadecimal digits."""
    return hashlib.sha256(repr(description).encode()).hexdigest()[:16]


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
    if callable(vars(kind).get("description")):
        return description_fingerprint(kind.description(sampler))
    n = len(sampler)
    stretches = (0, min(n, _SAMPLED)), (min(n, max(_SAMPLED, n - _SAMPLED)), n)
    indices = np.concatenate([sampler.indices(0, 0, start, stop) for start, stop in stretches])
    return hashlib.sha256(indices.astype("<i8").tobytes()).hexdigest()[:16]


class SequentialSampler(PositionalSamplerBase):
    """start, start + 1, ..., start + length - 1.

    Args:
        length: number of indices.
        start: the first one.

    Raises:
        ValueError: `length` is negative; an AssertionError too, as in Gluon.
    """

    def __init__(self, length: int, start: int = 0) -> None:
        require(length >= 0, f"length must not be negative, got {length}")
        self._length = length
        self._start = start

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        self._check_stretch(start, stop)
        return np.arange(self._start + start, self._start + stop, dtype=np.int64)

    def description(self) -> tuple[str, int, int]:
        """Return all that the order depends on."""
        return "sequential", self._length, self._start


class RandomSampler(SeededSampler):
    """Every index of range(length) once, in a new random order in each epoch.

    Args:
        length: number of indices.
        seed: see `SeededSampler`.
        shuffle_window: for data that are slow to read in random order: shuffle by chunks of neighbours instead, this
            number of indices at a time, at least 16; see `epoch_order.permute_in_windows`. None: a full shuffle.

    Raises:
        ValueError: `length` is negative, or `shuffle_window` below 16; an AssertionError too, as in Gluon.
    """

    def __init__(self, length: int, seed: int | None = None, *, shuffle_window: int | None = None) -> None:
        require(length >= 0, f"length must not be negative, got {length}")
        super().__init__(seed)
        self._length = length
        self._window = None
        if shuffle_window is not None:
            self._window = check_count("shuffle_window", shuffle_window, CHUNKS_OF_A_WINDOW)

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        if self._window is not None:
            self._check_stretch(start, stop)
            return permute_in_windows(seed, epoch, self._length, start, stop, window=self._window)
        return permute(seed, epoch, self._length, start, stop)

    def description(self) -> tuple[str, int, int | None]:
        """Return all that the order depends on, except seed and epoch."""
        return "random", self._length, self._window


class FilterSampler(PositionalSamplerBase):
    """The indices of the samples that satisfy a condition, in order. Every sample is read once, by the constructor.

    Args:
        fn: takes a sample (a tuple as one argument) and returns True to keep it.
        dataset: anything with a length and items.
    """

    def __init__(self, fn: Callable[[Any], object], dataset: MapDataset[Any]) -> None:
        kept = (index for index in range(len(dataset)) if fn(dataset[index]))
        self._indices: IntArray = np.fromiter(kept, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._indices)

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        self._check_stretch(start, stop)
        return np.array(self._indices[start:stop], np.int64)


class IntervalSampler(PositionalSamplerBase):
    """0, k, 2k, ..., then 1, 1 + k, ..., and so on for an interval of k.

    Args:
        length: the indices are in range(length).
        interval: distance of one index to the next, 1 <= interval <= length.
        rollover: begin again at 1, 2, ... until every index was yielded; False: only the first sweep.

    Raises:
        ValueError: `interval` is out of its range; an AssertionError too, as in Gluon.
    """

    def __init__(self, length: int, interval: int, rollover: bool = True) -> None:
        require(interval <= length, f"Interval {interval} must be smaller than or equal to length {length}")
        require(interval >= 1, f"interval must be at least 1, got {interval}")
        self._length = length if rollover else -(-length // interval)
        self._interval = interval
        self._rollover = rollover

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
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


class BatchSampler(Sampler):
    """Lists of `batch_size` indices from another sampler.

    Args:
        sampler: yields single indices; has a length.
        batch_size: indices of a batch, at least 1.
        last_batch: treatment of an incomplete last batch: "keep" yields it unchanged, "discard" drops it,
            "rollover" begins the next epoch with it. An epoch that is abandoned early carries nothing over.

    Raises:
        ValueError: `last_batch` is none of these, or `batch_size` is below 1.
    """

    def __init__(self, sampler: SamplerProtocol, batch_size: int, last_batch: str = "keep") -> None:
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
        """Iterate over the batches of one epoch."""
        return self._cut(self.sampler)

    def _cut(self, indices: Iterable[Any]) -> Iterator[list[Any]]:
        batch, self._carried = self._carried, []
        for index in indices:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and self.last_batch == "keep":
            yield batch
        elif self.last_batch == "rollover":
            self._carried = batch

    def __len__(self) -> int:
        """Return the number of batches of the next epoch."""
        count = len(self.sampler)
        if self.last_batch == "keep":
            return -(-count // self.batch_size)
        return (len(self._carried) + count) // self.batch_size
