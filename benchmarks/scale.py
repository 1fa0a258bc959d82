"""Cost of the epoch order for 1 to 4,096 ranks over 10**9 samples, and its fairness.

    python -m benchmarks.scale
    python -m benchmarks.scale --samples 1000000 --ranks 1 6 100

Each rank is measured alone, as on a separate machine: time to make its loader; time to compute the indices of its
first batch, at the start and at 90 % of the epoch; memory of both (tracemalloc's peak); and its numbers of batches and
of padding samples. No sample is read.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
import time
import tracemalloc
from dataclasses import dataclass

from aioloader import AsyncDataLoader
from aioloader.pipeline.plan import BatchSchedule, EpochPlan, PositionalStream
from aioloader.samplers import RandomSampler
from benchmarks.figures import Row, add_json_option, write_figures

BATCH = 64
_ASKED = 8  # number of ranks that are measured; all are counted


@dataclass
class Cost:
    """Cost of one rank.

    Attributes:
        made_s: seconds to make the loader.
        first_s, late_s: seconds to the first batch at the start, and at 90 %.
        peak: bytes.
    """

    made_s: float
    first_s: float
    late_s: float
    peak: int


class Counted:
    """Dataset with a length and no stored items."""

    def __init__(self, length: int) -> None:
        self.length = length

    def __len__(self) -> int:
        return self.length

    def __getitem__(self, index: int) -> int:
        return index


def loader_of(samples: int, rank: int, world: int) -> AsyncDataLoader[object]:
    """Return the loader of one rank; it starts nothing until it is iterated."""
    return AsyncDataLoader(Counted(samples), BATCH, shuffle=True, seed=1, shard=(rank, world))


def made_s(samples: int, rank: int, world: int) -> float:
    """Return the seconds until a rank has its loader and the number of its batches."""
    begin = time.perf_counter()
    len(loader_of(samples, rank, world))
    return time.perf_counter() - begin


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


def cost(samples: int, rank: int, world: int) -> Cost:
    """Return the cost of one rank; the median of three."""
    late = samples * 9 // 10 // (BATCH * world) * (BATCH * world)
    made = [made_s(samples, rank, world) for _ in range(3)]
    times = [first_batch_s(samples, rank, world, 0) for _ in range(3)]
    late_times = [first_batch_s(samples, rank, world, late) for _ in range(3)]
    tracemalloc.start()
    loader = loader_of(samples, rank, world)
    plan = plan_of(samples, rank, world)
    kept = list(itertools.islice(plan, 4))
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert len(kept) == min(4, len(loader))
    return Cost(statistics.median(made), statistics.median(times), statistics.median(late_times), peak)


def padded_of(samples: int, world: int) -> int:
    """Return the number of padding samples of all ranks, from the last step of each."""
    stride = BATCH * world
    start = (samples - 1) // stride * stride
    return sum(batch.padded for rank in range(world) for batch in plan_of(samples, rank, world, start))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--samples", type=int, default=10**9)
    parser.add_argument("--ranks", type=int, nargs="+", default=[1, 8, 64, 512, 4096])
    parser.add_argument("--smoke", action="store_true", help="few samples: a check that it runs")
    add_json_option(parser)
    options = parser.parse_args()
    if options.smoke:
        options.samples, options.ranks = 100_000, [1, 6]
    print(f"{options.samples:,} samples, batches of {BATCH} for each rank")
    columns = ("ranks", "batches of each", "loader, ms", "first batch, ms", "at 90 %, ms", "memory, kB")
    print(f"| {' | '.join((*columns, 'padding samples'))} |")
    print("| --- | --- | --- | --- | --- | --- | --- |")
    made_s(options.samples, 0, 1)  # lazy imports and caches of the first call
    first_batch_s(options.samples, 0, 1, 0)
    rows: list[Row] = []
    for world in options.ranks:
        asked = sorted({rank * (world - 1) // max(1, _ASKED - 1) for rank in range(_ASKED)})
        costs = [cost(options.samples, rank, world) for rank in asked]
        steps = {BatchSchedule(BATCH, "keep", rank, world).steps(options.samples) for rank in range(world)}
        assert len(steps) == 1, "every rank has the same number of batches"
        made, first, late = (
            1e3 * statistics.median(getattr(each, name) for each in costs)
            for name in ("made_s", "first_s", "late_s")
        )
        values = (steps.pop(), made, first, late, max(each.peak for each in costs) / 1e3)
        padded = padded_of(options.samples, world)
        rows.append(dict(zip((*columns, "padding samples"), (world, *values, padded), strict=True)))
        print(
            f"| {world:,} | {values[0]:,} | {made:.2f} | {first:.2f} | {late:.2f} | {values[4]:,.0f} | {padded:,} |"
        )
    write_figures(options.json, rows)


if __name__ == "__main__":
    main()
