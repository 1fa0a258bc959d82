"""Hold of the event loop by large results that come without rows, seen by a task that runs every millisecond.

    python -m benchmarks.large_results --rounds 5

Cases: a list of arrays of different sizes, --nbytes bytes a batch, made by `batchify.AsList`; the same with so little
slab memory that no batch has room in it; and arrays that pass through an async transform. For each: by how much the
latest tick was late (99 % and the most), from the first batch on, the CPU time of the loop's thread for a batch, and
batches per second. The workers are started, and have made one sample, before the loop ticks.
"""

from __future__ import annotations

import argparse
import asyncio
import time
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np

import aioloader
from aioloader import batchify
from aioloader.observability.lag import Lag
from aioloader.pipeline.watchdog import watch_lag
from benchmarks.figures import add_json_option, spread, write_figures

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
        spread = self._length // 4
        return np.full(self._length - spread + 2 * spread * (index % 13) // 12, index, np.float32)


async def _unchanged(sample: Any) -> Any:
    return sample


async def measure(case: str, nbytes: int, batches: int) -> tuple[float, float, float, float]:
    """Return the lag's 99 % and its most, the CPU time of the loop's thread a batch (s), and batches per second."""
    dataset: Any = Arrays(nbytes, batches)
    if case == "async":
        dataset = aioloader.SimpleDataset(dataset).transform(_unchanged)
    lag = Lag()
    async with aioloader.AsyncDataLoader[Any](
        dataset,
        _BATCH,
        batchify_fn=batchify.AsList(),
        num_workers=2,
        memory_limit=nbytes // 2 if case == "no room" else None,
    ) as loader:
        watch = asyncio.create_task(watch_lag(lag, _TICK_S, counts_missed=False))
        await asyncio.sleep(0)
        begun, cpu = perf_counter(), time.thread_time()
        seen = 0
        async for batch in loader:
            assert len(batch) == _BATCH
            assert batch[1][0] == seen * _BATCH + 1
            seen += 1
        spent = time.thread_time() - cpu
        wall = perf_counter() - begun
        watch.cancel()
    assert seen == batches
    return lag.quantile(0.99) or 0.0, lag.max_s, spent / seen, seen / wall


def main() -> None:
    """Run the command."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--batches", type=int, default=8)
    parser.add_argument("--nbytes", type=int, default=206 << 20)
    parser.add_argument("--smoke", action="store_true", help="small batches, one round: a check that it runs")
    add_json_option(parser)
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.batches, options.nbytes = 1, 2, 8 << 20
    cases = ("lists", "no room", "async")
    found: dict[str, list[tuple[float, float, float, float]]] = {case: [] for case in cases}
    for number in range(options.rounds):
        for case in cases[number % len(cases) :] + cases[: number % len(cases)]:
            found[case].append(asyncio.run(measure(case, options.nbytes, options.batches)))
    for case in cases:
        p99, most, cpu, rate = (median(column) for column in zip(*found[case], strict=True))
        print(
            f"{case:8s} lag p99 {p99 * 1e3:.1f} ms, most {most * 1e3:.1f} ms; {cpu * 1e3:.1f} ms of the loop's thread "
            f"a batch; {rate:.1f} batches/s"
        )
    columns = {case: list(zip(*rows, strict=True)) for case, rows in found.items()}
    write_figures(
        options.json,
        [
            {
                "case": case,
                "longest delay, ms": spread(most, 1e3),
                "loop's thread a batch, ms": spread(cpu, 1e3),
                "batches/s": spread(rate),
            }
            for case, (_, most, cpu, rate) in columns.items()
        ],
    )


if __name__ == "__main__":
    main()
