"""Randomness of `RandomSampler(shuffle_window=...)` and the number of its reads, compared with a full shuffle.

    python -m benchmarks.windows --samples 1281167 --windows 1024 16384

No file is read: the figures follow from the order alone.

- stretches: runs of neighbours in the file among a window's records, for each 1,000 samples; with an index each run
  is one read. A full shuffle has almost one for each sample.
- moved: distance of a sample from its place in the file, as a share of the set; a full shuffle has 0.33.
- neighbours: the share of samples that are in one batch with one of the 16 samples next to them in the file.
- classes: different classes in a batch if the file is sorted by class and has as many classes as ImageNet.
- again: the share of batch mates of one epoch that are batch mates in the next one too.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aioloader.samplers import RandomSampler
from benchmarks.measurement import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader.foundation.types import IntArray
    from benchmarks.figures import Row

BATCH = 256
_CLASSES = 1000
_NEAR = 16


def stretches(order: IntArray, window: int | None) -> float:
    """Return runs of neighbours for each 1,000 samples, window by window; batch by batch without windows."""
    size = window or BATCH
    parts = (np.sort(order[begin : begin + size]) for begin in range(0, len(order), size))
    return 1000 * sum(1 + int(np.count_nonzero(np.diff(part) > 1)) for part in parts) / len(order)


def in_batches(order: IntArray) -> IntArray:
    """Return whole batches, (n, BATCH)."""
    return order[: len(order) // BATCH * BATCH].reshape(-1, BATCH)


def with_neighbours(batches: IntArray) -> float:
    """Return the share of samples that have one of their neighbours in the file in their batch."""
    ordered = np.sort(batches, axis=1)
    near = np.diff(ordered, axis=1) <= _NEAR
    touched = np.zeros(ordered.shape, bool)
    touched[:, 1:] |= near
    touched[:, :-1] |= near
    return float(touched.mean())


def classes_of_a_batch(batches: IntArray, samples: int) -> float:
    """Return the mean number of different classes in a batch."""
    ordered = np.sort(batches * _CLASSES // samples, axis=1)
    return float((1 + np.count_nonzero(np.diff(ordered, axis=1), axis=1)).mean())


def mates_again(batches: IntArray, later: IntArray, samples: int) -> float:
    """Return the share of pairs of one batch that share a batch in the next epoch."""
    batch_of = np.arange(-samples, 0)  # the last few are not in a whole batch
    batch_of[later.ravel()] = np.repeat(np.arange(len(later)), BATCH)
    mates = batch_of[batches]
    # Each sample with the next ones of its batch: the order within a batch does not matter.
    pairs = [mates[:, :-step] == mates[:, step:] for step in (1, 7, 64)]
    return float(np.mean([pair.mean() for pair in pairs]))


def measure(samples: int = 1_281_167, windows: Sequence[int] = (1024, 4096, 16384, 65536)) -> Iterator[Row]:
    """Compute the figures of each window, and of none.

    Args:
        samples: of the set.
        windows: sizes.
    """
    for window in (None, *windows):
        sampler = RandomSampler(samples, shuffle_window=window)
        order, later = (sampler.indices(1, epoch, 0, samples) for epoch in (0, 1))
        batches = in_batches(order)
        yield {
            "window": f"{window:,}" if window else "none",
            "stretches in 1,000": stretches(order, window),
            "moved": float(np.abs(order - np.arange(samples)).mean()) / samples,
            "neighbours, %": 100 * with_neighbours(batches),
            "classes of a batch": classes_of_a_batch(batches, samples),
            "again, in 1,000": 1e3 * mates_again(batches, in_batches(later), samples),
        }


if __name__ == "__main__":
    run(measure, samples=20_000, windows=[1024])
