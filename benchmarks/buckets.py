"""Padding of the batches of `BucketBatchSampler`, and the steps of three ranks.

    python -m benchmarks.buckets --samples 1000000 --batch 64 --ranks 8

The lengths are drawn from a log-normal distribution, as those of texts. For batches of one size, and of one budget of
tokens, without buckets and with several numbers of them, as a loader with ``shard=`` deals them out to the ranks:

- padding: share of a padded batch that is padding, and that of the 1 % of batches with most
- steps: of each rank; they must be equal, and every sequence must come once
- uneven: mean, over the steps, of the largest batch of the ranks, in padded tokens, over their mean: the time that
  ranks wait for each other
- cost: microseconds of the plan for each sequence
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader import ArrayDataset, DataLoader
from aioloader.samplers import BucketBatchSampler
from benchmarks.measurement import run, seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader.foundation.types import IntArray
    from benchmarks.figures import Row

LONGEST = 2048


def loader_of(lengths: IntArray, options: dict[str, Any], **shard: Any) -> DataLoader[Any]:
    """Return a loader of the indices in batches of like lengths."""
    sampler = BucketBatchSampler(lengths, **options)
    return DataLoader(ArrayDataset(np.arange(len(lengths))), batch_sampler=sampler, num_workers=0, **shard)


def row(lengths: IntArray, world: int, options: dict[str, Any]) -> Row:
    """Return the figures of one number of buckets.

    Raises:
        SystemExit: the ranks together did not receive every index once, or in different numbers of steps.
    """
    seconds = seconds_of(lambda: list(BucketBatchSampler(lengths, **options).batches(0, 0)))
    ranks, receipts = [], []
    for rank in range(world):
        with loader_of(lengths, options, shard=(rank, world)) as loader:
            ranks.append([np.array(batch) for batch in loader])
            receipts.append(loader.receipt())
    with loader_of(lengths, options) as loader:
        loader.check_receipt(sum(receipts))
    steps = {len(batches) for batches in ranks}
    if len(steps) != 1 or sum(receipts).seen != len(lengths):
        raise SystemExit(f"{sum(receipts).seen} of {len(lengths)} sequences came, in {sorted(steps)} steps")
    padded = np.array([[lengths[batch].max() * len(batch) for batch in batches] for batches in ranks])
    filled = np.array([[lengths[batch].sum() for batch in batches] for batches in ranks])
    kind = f"{options['budget']:,} tokens" if "budget" in options else f"{options['batch_size']} sequences"
    return {
        "batches of": kind,
        "buckets": options["buckets"],
        "sequences of a batch": np.mean([len(batch) for batches in ranks for batch in batches]),
        "padding, %": 100 * (1 - filled.sum() / padded.sum()),
        "padding of the worst 1 %, %": 100 * np.percentile(1 - filled / padded, 99),
        "steps of each rank": steps.pop(),
        "uneven": (padded.max(0) / padded.mean(0)).mean(),
        "cost of a sequence, µs": 1e6 * seconds / len(lengths),
    }


def measure(
    samples: int = 100_000, batch: int = 32, buckets: Sequence[int] = (1, 4, 16, 64), ranks: int = 3
) -> Iterator[Row]:
    """Measure batches of one size and of one budget.

    Args:
        samples: sequences of the epoch.
        batch: sequences of a batch.
        buckets: numbers of buckets.
        ranks: their number.
    """
    lengths = np.random.default_rng(0).lognormal(5.5, 0.8, samples).clip(8, LONGEST).astype(np.int64)
    for kind in ({"batch_size": batch}, {"budget": batch * LONGEST // 4}):
        for number in buckets:
            yield row(lengths, ranks, {**kind, "buckets": number})


if __name__ == "__main__":
    run(measure, samples=2000)
