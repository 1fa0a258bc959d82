"""Randomness of `RandomSampler(shuffle_window=...)` and the number of its reads, compared with a full shuffle.

    python -m benchmarks.windows
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

import argparse
from typing import TYPE_CHECKING

import numpy as np

from aioloader.samplers import RandomSampler
from benchmarks.figures import Row, add_json_option, write_figures

if TYPE_CHECKING:
    import numpy.typing as npt

BATCH = 256
_CLASSES = 1000
_NEAR = 16


def stretches(order: npt.NDArray[np.int64], window: int | None) -> float:
    """Return runs of neighbours for each 1,000 samples, window by window; batch by batch without windows."""
    size = window or BATCH
    runs = 0
    for begin in range(0, len(order), size):
        runs += 1 + int(np.count_nonzero(np.diff(np.sort(order[begin : begin + size])) > 1))
    return 1000 * runs / len(order)


def in_batches(order: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
    """Return whole batches, (n, BATCH)."""
    whole = len(order) // BATCH * BATCH
    return order[:whole].reshape(-1, BATCH)


def with_neighbours(batches: npt.NDArray[np.int64]) -> float:
    """Return the share of samples that have one of their neighbours in the file in their batch."""
    ordered = np.sort(batches, axis=1)
    near = np.diff(ordered, axis=1) <= _NEAR
    touched = np.zeros(ordered.shape, bool)
    touched[:, 1:] |= near
    touched[:, :-1] |= near
    return float(touched.mean())


def classes_of_a_batch(batches: npt.NDArray[np.int64], samples: int) -> float:
    """Return the mean number of different classes in a batch."""
    ordered = np.sort(batches * _CLASSES // samples, axis=1)
    return float((1 + np.count_nonzero(np.diff(ordered, axis=1), axis=1)).mean())


def mates_again(batches: npt.NDArray[np.int64], later: npt.NDArray[np.int64], samples: int) -> float:
    """Return the share of pairs of one batch that share a batch in the next epoch."""
    batch_of = np.arange(-samples, 0)  # the last few are not in a whole batch
    batch_of[later.ravel()] = np.repeat(np.arange(len(later)), BATCH)
    mates = batch_of[batches]
    # Each sample with the next ones of its batch: the order within a batch does not matter.
    pairs = [mates[:, :-step] == mates[:, step:] for step in (1, 7, 64)]
    return float(np.mean([pair.mean() for pair in pairs]))


def row(samples: int, window: int | None) -> Row:
    """Return the figures of one line of the table."""
    sampler = RandomSampler(samples, shuffle_window=window)
    order, later = sampler.indices(1, 0, 0, samples), sampler.indices(1, 1, 0, samples)
    moved = float(np.abs(order - np.arange(samples)).mean()) / samples
    batches = in_batches(order)
    return {
        "window": f"{window:,}" if window else "none",
        "stretches in 1,000": stretches(order, window),
        "moved": moved,
        "neighbours, %": 100 * with_neighbours(batches),
        "classes of a batch": classes_of_a_batch(batches, samples),
        "again, in 1,000": 1e3 * mates_again(batches, in_batches(later), samples),
    }


def line(figures: Row) -> str:
    """Return one line of the table."""
    return (
        f"| {figures['window']} | {figures['stretches in 1,000']:,.1f} | {figures['moved']:.2f} "
        f"| {figures['neighbours, %']:.1f} % | {figures['classes of a batch']:.0f} "
        f"| {figures['again, in 1,000']:.2f} in 1,000 |"
    )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=1_281_167)
    parser.add_argument("--windows", type=int, nargs="+", default=[1024, 4096, 16384, 65536])
    parser.add_argument("--smoke", action="store_true", help="few samples: a check that it runs")
    add_json_option(parser)
    options = parser.parse_args()
    if options.smoke:
        options.samples, options.windows = 20_000, [1024]
    print(f"{options.samples:,} samples, batches of {BATCH}")
    print("| window | stretches in 1,000 | moved | neighbours | classes of a batch | again |")
    print("| --- | --- | --- | --- | --- | --- |")
    rows = []
    for window in (None, *options.windows):
        rows.append(row(options.samples, window))
        print(line(rows[-1]))
    write_figures(options.json, rows)


if __name__ == "__main__":
    main()
