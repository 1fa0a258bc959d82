"""Main job of the loader: `AsyncDataLoader` and the bare loop, measured alternately in one run.

Both do the same work on the same images with the same draws: RandomResizedCrop(224), antialiased as it is by default,
and a flip. Compare the ratio of the medians: absolute speed depends on the machine. The lag of a task that wants to run
every millisecond is measured in the loader's event loop, and in an idle loop while the bare loop's processes are busy.

    python -m benchmarks.main_job --data FOLDER --workers 2 --rounds 7
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import Any

import anyio
import anyio.to_thread

import aioloader
import recordio
from aioloader import transforms
from aioloader.foundation.host_limits import available_cores
from aioloader.tools.bench import BareLoop
from aioloader.tools.lag import LagSummary, LoopLag
from benchmarks.data import add_data_option, load_jpegs
from benchmarks.figures import add_json_option, spread, write_figures


def write_rec(path: Path, jpegs: list[bytes], repeat: int) -> None:
    """Write the same files `repeat` times."""
    with recordio.RecordWriter(path, index=True) as writer:
        for key, jpeg in enumerate(jpegs * repeat):
            writer.write(recordio.pack(recordio.IRHeader(0, float(key % len(jpegs)), key, 0), jpeg), key)


async def one_epoch(loader: Any) -> float:
    """Return images per second of a whole epoch, including its start and end."""
    count = 0
    start = perf_counter()
    async for images, _ in loader:
        count += len(images)
    return count / (perf_counter() - start)


async def compare(rec: Path, jpegs: list[bytes], options: argparse.Namespace) -> None:
    """Take turns, then print."""
    augment = transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()])
    dataset = aioloader.ImageRecordDataset(str(rec)).transform_first(augment)
    beside_loader, beside_bare = LoopLag(), LoopLag()
    loader_rates, bare_rates = [], []
    with BareLoop(jpegs, options.workers) as bare:
        async with aioloader.AsyncDataLoader[Any](
            dataset, options.batch_size, shuffle=True, num_workers=options.workers, executor=options.executor
        ) as loader:
            await one_epoch(loader)  # starts the workers
            await anyio.to_thread.run_sync(bare.measure, 0.2)
            for _ in range(options.rounds):
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(beside_loader.watch)
                    loader_rates.append(await one_epoch(loader))
                    tasks.cancel_scope.cancel()
                async with anyio.create_task_group() as tasks:
                    tasks.start_soon(beside_bare.watch)
                    bare_rates.append(await anyio.to_thread.run_sync(bare.measure, options.seconds))
                    tasks.cancel_scope.cancel()
            explanation = loader.explain()
    ratios = [mine / light for mine, light in zip(loader_rates, bare_rates, strict=True)]
    print(
        f"{options.rounds} rounds, {options.workers} workers, {options.executor}, {len(jpegs)} files x {options.repeat}"
    )
    print(f"bare loop        {_spread(bare_rates, ',.0f')} images/s")
    print(f"AsyncDataLoader  {_spread(loader_rates, ',.0f')} images/s")
    print(f"ratio            {_spread(ratios, '.3f')}")
    print(f"loop lag during the bare loop        {_lag(beside_bare.result())}")
    print(f"loop lag during the AsyncDataLoader  {_lag(beside_loader.result())}")
    print(explanation)
    late, late_bare = beside_loader.result(), beside_bare.result()
    write_figures(
        options.json,
        [
            {
                "loop": "bare loop",
                "images/s": spread(bare_rates),
                "lag p50, ms": late_bare.p50_ms,
                "lag p99, ms": late_bare.p99_ms,
            },
            {
                "loop": "AsyncDataLoader",
                "images/s": spread(loader_rates),
                "of the bare loop": spread(ratios),
                "lag p50, ms": late.p50_ms,
                "lag p99, ms": late.p99_ms,
            },
        ],
    )


def _spread(values: list[float], form: str) -> str:
    return f"median {median(values):{form}} (from {min(values):{form}} to {max(values):{form}})"


def _lag(lag: LagSummary) -> str:
    return f"p50 {lag.p50_ms:.2f} ms, p99 {lag.p99_ms:.2f} ms, max {lag.max_ms:.1f} ms"


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description="AsyncDataLoader against the bare loop, alternately in one run"
    )
    add_data_option(parser)
    parser.add_argument("--workers", type=int, default=available_cores(), help="default: one per core")
    parser.add_argument("--executor", default="process", choices=("process", "thread"))
    parser.add_argument("--batch-size", type=int, default=64)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--repeat", type=int, default=24, help="how often each file is in an epoch")
    parser.add_argument("--seconds", type=float, default=2.0, help="seconds of each turn of the bare loop")
    parser.add_argument(
        "--smoke", action="store_true", help="one short round: a check that it runs, not a measurement"
    )
    add_json_option(parser)
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.repeat, options.seconds = 1, 2, 0.3
    with tempfile.TemporaryDirectory() as scratch:
        jpegs = load_jpegs(options.data, scratch)
        rec = Path(scratch, "bench.rec")
        write_rec(rec, jpegs, options.repeat)
        anyio.run(compare, rec, jpegs, options)


if __name__ == "__main__":
    main()
