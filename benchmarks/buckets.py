"""Padding of the batches of `BucketBatchSampler`, and the steps of three ranks.

    python -m benchmarks.buckets
    python -m benchmarks.buckets --samples 1000000 --batch 64 --ranks 8

The lengths are drawn from a log-normal distribution, as those of texts. For batches of one size, and of one budget of
tokens, without buckets and with several numbers of them, as a loader with ``shard=`` deals them out to the ranks:

- padding: share of a padded batch that is padding, and that of the 1 % of batches with most
- a batch: sequences of a batch, on average
- steps: of each rank; they must be equal, and every sequence must come once
- uneven: mean, over the steps, of the largest batch of the ranks, in padded tokens, over their mean: the time that
  ranks wait for each other
- plan: microseconds for each sequence
"""

from __future__ import annotations

import argparse
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader import ArrayDataset, DataLoader
from aioloader.samplers import BucketBatchSampler
from benchmarks.figures import Row, add_json_option, write_figures

if TYPE_CHECKING:
    from aioloader.foundation.types import IntArray

LONGEST = 2048


def lengths_of(samples: int) -> IntArray:
    """Return lengths like those of texts, int64."""
    drawn = np.random.default_rng(0).lognormal(5.5, 0.8, samples)
    return np.clip(drawn, 8, LONGEST).astype(np.int64)


def batches_of(lengths: IntArray, rank: int, world: int, **options: Any) -> tuple[list[IntArray], Any]:
    """Return the indices of one rank's batches, and its receipt."""
    sampler = BucketBatchSampler(lengths, **options)
    dataset = ArrayDataset(np.arange(len(lengths)))
    with DataLoader(dataset, batch_sampler=sampler, shard=(rank, world), num_workers=0) as loader:
        return [np.array(batch) for batch in loader], loader.receipt()


def check(lengths: IntArray, receipts: list[Any], **options: Any) -> None:
    """Raise unless the ranks together received every index once."""
    sampler = BucketBatchSampler(lengths, **options)
    dataset = ArrayDataset(np.arange(len(lengths)))
    with DataLoader(dataset, batch_sampler=sampler, num_workers=0) as loader:
        loader.check_receipt(sum(receipts))
    if sum(receipts).seen != len(lengths):
        raise SystemExit(f"{sum(receipts).seen} of {len(lengths)} sequences came")


def row(lengths: IntArray, world: int, buckets: int, **options: Any) -> Row:
    """Print one line of the table; return its figures."""
    options["buckets"] = buckets
    begin = perf_counter()
    for _ in BucketBatchSampler(lengths, **options).batches(0, 0):
        pass
    seconds = perf_counter() - begin
    ranks, receipts = zip(
        *(batches_of(lengths, rank, world, **options) for rank in range(world)), strict=True
    )
    check(lengths, list(receipts), **options)
    steps = {len(batches) for batches in ranks}
    if len(steps) != 1:
        raise SystemExit(f"the ranks have different numbers of steps: {sorted(steps)}")
    padded = np.array([[lengths[batch].max() * len(batch) for batch in batches] for batches in ranks])
    filled = np.array([[lengths[batch].sum() for batch in batches] for batches in ranks])
    waste = 1 - filled / padded
    sizes = np.mean([len(batch) for batches in ranks for batch in batches])
    kind = f"{options['budget']:,} tokens" if "budget" in options else f"{options['batch_size']} sequences"
    padding, worst, step = 1 - filled.sum() / padded.sum(), np.percentile(waste, 99), steps.pop()
    uneven, cost_us = (padded.max(0) / padded.mean(0)).mean(), 1e6 * seconds / len(lengths)
    print(
        f"{kind:>14} {buckets:>8} {sizes:>9.1f} {padding:>9.1%} "
        f"{worst:>9.1%} {' = '.join([f'{step:,}'] * world):>22} "
        f"{uneven:>8.2f} {cost_us:>8.2f}"
    )
    return {
        "batches of": kind,
        "buckets": buckets,
        "sequences of a batch": sizes,
        "padding, %": 100 * padding,
        "padding of the worst 1 %, %": 100 * worst,
        "steps of each rank": step,
        "uneven": uneven,
        "cost of a sequence, µs": cost_us,
    }


def main() -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(description="padding of batches of like items")
    parser.add_argument("--samples", type=int, default=100_000, help="sequences of the epoch")
    parser.add_argument("--batch", type=int, default=32, help="sequences of a batch")
    parser.add_argument("--buckets", type=int, nargs="+", default=[1, 4, 16, 64])
    parser.add_argument("--ranks", type=int, default=3)
    parser.add_argument(
        "--smoke", action="store_true", help="few sequences: a check that it runs, not a measurement"
    )
    add_json_option(parser)
    options = parser.parse_args()
    lengths = lengths_of(2000 if options.smoke else options.samples)
    budget = options.batch * LONGEST // 4
    print(f"{len(lengths):,} sequences of {lengths.min()} to {lengths.max():,}, mean {lengths.mean():,.0f}")
    print("   batch size  buckets   a batch   padding  worst 1%  steps of the ranks      uneven  µs/item")
    kinds: list[Row] = [{"batch_size": options.batch}, {"budget": budget}]
    rows = [row(lengths, options.ranks, buckets, **kind) for kind in kinds for buckets in options.buckets]
    write_figures(options.json, rows)


if __name__ == "__main__":
    main()
