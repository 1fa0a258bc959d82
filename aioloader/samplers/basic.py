"""Samplers of all indices: in order, shuffled, at intervals or selected by a condition; and batches of indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.validation import require
from aioloader.samplers.base import ComputedSampler, Sampler, SeededSampler
from aioloader.samplers.epoch_order import Windows, permute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from aioloader.abc import MapDataset
    from aioloader.abc import Sampler as SamplerProtocol
    from aioloader.foundation.types import IntArray


class SequentialSampler(ComputedSampler):
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
            number of indices at a time, at least 16; see `aioloader.samplers.epoch_order.Windows`. None: one order
            over all.

    Raises:
        ValueError: `length` is negative, or `shuffle_window` below 16; an AssertionError too, as in Gluon.
    """

    def __init__(self, length: int, seed: int | None = None, *, shuffle_window: int | None = None) -> None:
        require(length >= 0, f"length must not be negative, got {length}")
        super().__init__(seed)
        self._length = length
        self._windows = None if shuffle_window is None else Windows(length, shuffle_window)

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        if self._windows is not None:
            self._check_stretch(start, stop)
            return self._windows.order(seed, epoch, start, stop)
        return permute(seed, epoch, self._length, start, stop)

    def description(self) -> tuple[str, int, int | None]:
        """Return all that the order depends on, except seed and epoch."""
        return "random", self._length, None if self._windows is None else self._windows.window


class FilterSampler(ComputedSampler):
    """The indices of the samples that satisfy a condition, in order. Every sample is read once, by the constructor.

    Args:
        fn: takes a sample (a tuple as one argument) and returns True to keep it.
        dataset: anything with a length and items.
    """

    def __init__(self, fn: Callable[[Any], object], dataset: MapDataset[Any]) -> None:
        kept = (index for index in range(len(dataset)) if fn(dataset[index]))
        self._indices: IntArray = np.fromiter(kept, dtype=np.int64)
        self._length = len(self._indices)

    def indices(self, seed: int, epoch: int, start: int, stop: int) -> IntArray:
        self._check_stretch(start, stop)
        return self._indices[start:stop].copy()


class IntervalSampler(ComputedSampler):
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
            "rollover" begins the next pass with it. A pass that is abandoned early carries nothing over.

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
        """Iterate over the batches of one pass."""
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
        """Return the number of batches of the next pass."""
        count = len(self.sampler)
        if self.last_batch == "keep":
            return -(-count // self.batch_size)
        return (len(self._carried) + count) // self.batch_size
