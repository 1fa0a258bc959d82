"""Time from making a loader to its first batch: the start of the workers included, imports not, the index cached.

    python -m benchmarks.first_batch --data FOLDER

Executors take turns; every loader is new. A warm-up round, which is not counted, does all lazy imports.
"""

from __future__ import annotations

import argparse
import asyncio
import statistics
import tempfile
from pathlib import Path
from time import perf_counter

import aioloader
from aioloader import transforms
from aioloader.foundation.host_limits import available_cores
from benchmarks.data import add_data_option, load_jpegs
from benchmarks.figures import add_json_option, spread, write_figures
from benchmarks.main_job import write_rec

EXECUTORS = ("inline", "thread", "process")


async def first_batch(rec: Path, executor: str, workers: int, batch_size: int) -> float:
    """Return the seconds from making the loader to its first batch."""
    augment = transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()])
    begin = perf_counter()
    dataset = aioloader.ImageRecordDataset(rec).transform_first(augment)
    loader = aioloader.AsyncDataLoader(
        dataset, batch_size, executor=executor, num_workers=None if executor == "inline" else workers
    )
    async with loader:
        async for _ in loader:
            return perf_counter() - begin
    raise SystemExit("the loader delivered no batch")


def main() -> None:
    """Parse the command line and print medians."""
    parser = argparse.ArgumentParser(description="time to the first batch of a new loader")
    add_data_option(parser)
    parser.add_argument("--workers", type=int, default=available_cores(), help="default: one per core")
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--smoke", action="store_true", help="one round: a check that it runs, not a measurement"
    )
    add_json_option(parser)
    options = parser.parse_args()
    rounds = 1 if options.smoke else options.rounds
    with tempfile.TemporaryDirectory() as scratch:
        rec = Path(scratch, "images.rec")
        write_rec(rec, load_jpegs(options.data, scratch), 1)
        times: dict[str, list[float]] = {executor: [] for executor in EXECUTORS}
        for round_number in range(rounds + 1):
            for executor in EXECUTORS:
                seconds = asyncio.run(first_batch(rec, executor, options.workers, options.batch_size))
                if round_number:
                    times[executor].append(seconds)
    print(f"{rounds} rounds, {options.workers} workers, first batch of {options.batch_size}")
    for executor, found in times.items():
        print(
            f"{executor:8} median {statistics.median(found) * 1e3:,.0f} ms "
            f"(from {min(found) * 1e3:,.0f} to {max(found) * 1e3:,.0f})"
        )
    write_figures(
        options.json,
        [{"executor": executor, "first batch, s": spread(found)} for executor, found in times.items()],
    )


if __name__ == "__main__":
    main()
