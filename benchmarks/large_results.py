"""Hold of the event loop by large results that come without rows, seen by a task that runs every millisecond.

    python -m benchmarks.large_results --rounds 5

Cases: a list of arrays of different sizes, --nbytes bytes a batch, made by `batchify.AsList`; the same with so little
slab memory that no batch has room in it; and arrays that pass through an async transform. For each: by how much the
latest tick was late, from the first batch on, the CPU time of the loop's thread for a batch, and batches per second.
The workers are started, and have made one sample, before the loop ticks.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

import numpy as np

import aioloader
from aioloader import batchify
from aioloader.observability.lag import Lag
from aioloader.pipeline.watchdog import watch_lag
from benchmarks.figures import spread
from benchmarks.measurement import in_turns, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.figures import Row

_BATCH = 48
_TICK_S = 0.001


class Arrays:
    """Dataset of float32 arrays of different lengths.

    Args:
        nbytes: of a batch of 48.
        batches: their number.
    """

    def __init__(self, nbytes: int, batches: int) -> None:
        self._length = nbytes // _BATCH // 4
        self._count = _BATCH * batches

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, index: int) -> Any:
        more = self._length // 4
        return np.full(self._length - more + 2 * more * (index % 13) // 12, index, np.float32)


async def _unchanged(sample: Any) -> Any:
    return sample


async def load(case: str, nbytes: int, batches: int) -> tuple[float, float, float]:
    """Return the most that a tick was late (s), the CPU time of the loop's thread a batch (s), and batches/s."""
    dataset: Any = Arrays(nbytes, batches)
    if case == "async":
        dataset = aioloader.SimpleDataset(dataset).transform(_unchanged)
    lag = Lag()
    limit = nbytes // 2 if case == "no room" else None
    async with aioloader.AsyncDataLoader[Any](
        dataset, _BATCH, batchify_fn=batchify.AsList(), num_workers=2, memory_limit=limit
    ) as loader:
        watch = asyncio.create_task(watch_lag(lag, _TICK_S, counts_missed=False))
        await asyncio.sleep(0)
        begun, cpu = time.perf_counter(), time.thread_time()
        seen = 0
        async for batch in loader:
            assert len(batch) == _BATCH
            assert batch[1][0] == seen * _BATCH + 1
            seen += 1
        spent, wall = time.thread_time() - cpu, time.perf_counter() - begun
        watch.cancel()
    assert seen == batches
    return lag.max_s, spent / seen, seen / wall


def measure(rounds: int = 5, batches: int = 8, nbytes: int = 206 << 20) -> Iterator[Row]:
    """Measure the cases in turns.

    Args:
        rounds: turns of each case.
        batches: of an epoch.
        nbytes: of a batch.
    """
    ways = {
        case: lambda case=case: asyncio.run(load(case, nbytes, batches))
        for case in ("lists", "no room", "async")
    }
    for case, found in in_turns(ways, rounds, warm=0).items():
        most, cpu, rate = zip(*found, strict=True)
        yield {
            "case": case,
            "longest delay, ms": spread(most, 1e3),
            "loop's thread a batch, ms": spread(cpu, 1e3),
            "batches/s": spread(rate),
        }


if __name__ == "__main__":
    run(measure, rounds=1, batches=2, nbytes=8 << 20)
