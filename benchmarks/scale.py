"""Cost of the epoch order for 1 to 4,096 ranks over 10**9 samples, and its fairness.

    python -m benchmarks.scale --samples 1000000 --ranks 1 6 100

Each rank is measured alone, as on a separate machine: time to make its loader; time to compute the indices of its
first batch, at the start and at 90 % of the epoch; memory of both (tracemalloc's peak); and its numbers of batches and
of padding samples. No sample is read.
"""

from __future__ import annotations

import itertools
import time
import tracemalloc
from statistics import median
from typing import TYPE_CHECKING

from aioloader import AsyncDataLoader
from aioloader.pipeline.plan import BatchSchedule, EpochPlan, PositionalStream
from aioloader.samplers import RandomSampler
from benchmarks.measurement import run, seconds_of

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.figures import Row

BATCH = 64
_ASKED = 8  # number of ranks that are measured; all are counted


class Counted:
    """Dataset with a length and no stored items."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


def batches_of(samples: int, rank: int, world: int) -> int:
    """Make the loader of one rank, which starts nothing until it is iterated; return the number of its batches."""
    return len(AsyncDataLoader(Counted(samples), BATCH, shuffle=True, seed=1, shard=(rank, world)))


def plan_of(samples: int, rank: int, world: int, start: int = 0) -> EpochPlan:
    """Return the plan of one rank."""
    stream = PositionalStream(RandomSampler(samples), seed=1, epoch=3)
    return EpochPlan(stream, BatchSchedule(BATCH, "keep", rank, world), start)


def first_batch_s(samples: int, rank: int, world: int, start: int) -> float:
    """Return the seconds until a rank has the indices of its first batch."""
    begin = time.perf_counter()
    batch = next(iter(plan_of(samples, rank, world, start)))
    assert len(batch.indices) == BATCH
    return time.perf_counter() - begin


def cost(samples: int, rank: int, world: int) -> tuple[float, float, float, int]:
    """Return the seconds of one rank's loader, of its first batch at the start and at 90 %; and bytes at the peak."""
    late = samples * 9 // 10 // (BATCH * world) * (BATCH * world)
    made = median(seconds_of(lambda: batches_of(samples, rank, world)) for _ in range(3))
    first, later = (
        median(first_batch_s(samples, rank, world, start) for _ in range(3)) for start in (0, late)
    )
    tracemalloc.start()
    batches = batches_of(samples, rank, world)
    kept = list(itertools.islice(plan_of(samples, rank, world), 4))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(kept) == min(4, batches)
    return made, first, later, peak


def measure(samples: int = 10**9, ranks: Sequence[int] = (1, 8, 64, 512, 4096)) -> Iterator[Row]:
    """Measure some ranks of each number of ranks.

    Args:
        samples: of the set.
        ranks: numbers of ranks.
    """
    cost(samples, 0, 1)  # lazy imports and caches of the first call
    for world in ranks:
        asked = sorted({rank * (world - 1) // max(1, _ASKED - 1) for rank in range(_ASKED)})
        made, first, late, peaks = zip(*(cost(samples, rank, world) for rank in asked), strict=True)
        (steps,) = {BatchSchedule(BATCH, "keep", rank, world).steps(samples) for rank in range(world)}
        last = (samples - 1) // (BATCH * world) * (BATCH * world)
        padded = sum(batch.padded for rank in range(world) for batch in plan_of(samples, rank, world, last))
        yield {
            "ranks": world,
            "batches of each": steps,
            "loader, ms": 1e3 * median(made),
            "first batch, ms": 1e3 * median(first),
            "at 90 %, ms": 1e3 * median(late),
            "memory, kB": max(peaks) / 1e3,
            "padding samples": padded,
        }


if __name__ == "__main__":
    run(measure, samples=100_000, ranks=[1, 6])
