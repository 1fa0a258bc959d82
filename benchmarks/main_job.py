"""Main job of the loader: `AsyncDataLoader` and the bare loop, measured alternately in one run.

Both do the same work on the same images with the same draws: RandomResizedCrop(224), antialiased as it is by default,
and a flip. Compare the ratio of the medians: absolute speed depends on the machine. The lag of a task that wants to run
every millisecond is measured in the loader's event loop, and in an idle loop while the bare loop's processes are busy.

    python -m benchmarks.main_job --data FOLDER --workers 2 --rounds 7
"""

from __future__ import annotations

import os
import tempfile
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread

import aioloader
from aioloader import transforms
from aioloader.foundation.host_limits import available_cores
from aioloader.tools.bench import BareLoop, LoopLag, cpu_seconds
from benchmarks.data import load_jpegs, write_rec
from benchmarks.figures import costs, ratios
from benchmarks.measurement import run

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from benchmarks.figures import Row


async def one_epoch(loader: Any) -> float:
    """Return images per second of a whole epoch, including its start and end."""
    count = 0
    start = perf_counter()
    async for images, _ in loader:
        count += len(images)
    return count / (perf_counter() - start)


async def beside(lag: LoopLag, rate: Awaitable[float]) -> tuple[float, float]:
    """Return a rate and CPU seconds an image; watch the lag of this loop meanwhile."""
    used, start = cpu_seconds(os.getpid()) or 0.0, perf_counter()
    async with anyio.create_task_group() as tasks:
        tasks.start_soon(lag.watch)
        found = await rate
        tasks.cancel_scope.cancel()
    spent = (cpu_seconds(os.getpid()) or 0.0) - used
    return found, spent / (found * (perf_counter() - start))


async def measure(
    data: str | None = None,
    workers: int = available_cores(),
    executor: str = "process",
    batch_size: int = 64,
    rounds: int = 7,
    repeat: int = 24,
    seconds: float = 2.0,
) -> list[Row]:
    """Measure the loader and the bare loop in turns.

    Args:
        data: folder.
        workers: of both.
        executor: "process" or "thread".
        batch_size: of the loader.
        rounds: turns of each.
        repeat: how often each file is in an epoch.
        seconds: of each turn of the bare loop.
    """
    jpegs = load_jpegs(data)
    augment = transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()])
    lags = {"bare loop": LoopLag(), "AsyncDataLoader": LoopLag()}
    turns: dict[str, list[tuple[float, float]]] = {name: [] for name in lags}
    with tempfile.TemporaryDirectory() as scratch, BareLoop(jpegs, workers) as bare:
        rec = Path(scratch, "bench.rec")
        write_rec(rec, jpegs, repeat)
        dataset = aioloader.ImageRecordDataset(str(rec)).transform_first(augment)
        async with aioloader.AsyncDataLoader[Any](
            dataset, batch_size, shuffle=True, num_workers=workers, executor=executor
        ) as loader:
            await one_epoch(loader)  # starts the workers
            await anyio.to_thread.run_sync(bare.measure, 0.2)
            for _ in range(rounds):
                for name, rate in (
                    ("AsyncDataLoader", one_epoch(loader)),
                    ("bare loop", anyio.to_thread.run_sync(bare.measure, seconds)),
                ):
                    turns[name].append(await beside(lags[name], rate))
            print(loader.explain())
    late = {name: lag.result() for name, lag in lags.items()}
    rows: list[Row] = []
    rates = {name: [rate for rate, _ in found] for name, found in turns.items()}
    for name, found in turns.items():
        compared = ratios(rates[name], rates["bare loop"])
        share = {"of the bare loop": compared} if name == "AsyncDataLoader" else {}
        lag = {"lag p50, ms": late[name].p50_ms, "lag p99, ms": late[name].p99_ms}
        rows.append({"loop": name, **costs(found), **share, **lag})
    return rows


if __name__ == "__main__":
    run(measure, rounds=1, repeat=2, seconds=0.3)
