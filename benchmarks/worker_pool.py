"""Time to the first batch of a new loader, with new worker processes and with those of a pool.

    python -m benchmarks.worker_pool
    python -m benchmarks.worker_pool --loaders 10 --workers 4 --busy 8

One loader after the other is made over a set of JPEGs, as for the folds of a validation or for every epoch. Each is
asked for its first batch and closed: with ``executor="process"``, with a `WorkerPool`, and with threads. `--busy`
processes keep the machine busy meanwhile. The first loader of each kind is shown apart: it starts the processes in all
cases.
"""

from __future__ import annotations

import argparse
import subprocess
import sys
import tempfile
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from aioloader import DataLoader, ImageFolderDataset
from aioloader.executors import WorkerPool
from aioloader.transforms import Compose, RandomHorizontalFlip, RandomResizedCrop
from benchmarks.data import add_data_option, load_jpegs
from benchmarks.figures import add_json_option, spread, write_figures

_BUSY = "while True: pass"


def first_batch(dataset: Any, executor: Any, workers: int) -> tuple[float, float]:
    """Return the seconds to the first batch of a new loader, and those that closing it takes."""
    begin = perf_counter()
    with DataLoader(dataset, 16, shuffle=True, executor=executor, num_workers=workers) as loader:
        next(iter(loader))
        reached = perf_counter()
    return reached - begin, perf_counter() - reached


def row(kind: str, times: list[tuple[float, float]]) -> str:
    """Return one line of the table."""
    firsts, closes = np.array(times[1:]).T
    return (
        f"{kind:>8} {times[0][0]:>9.2f} {np.median(firsts):>10.3f} {firsts.min():>8.3f} {firsts.max():>8.3f} "
        f"{np.median(closes):>8.3f}"
    )


def main() -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(description="first batch of loaders that share worker processes")
    add_data_option(parser)
    parser.add_argument("--loaders", type=int, default=7, help="loaders of each kind")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--busy", type=int, default=0, help="processes that keep the machine busy")
    parser.add_argument(
        "--smoke", action="store_true", help="few loaders: a check that it runs, not a measurement"
    )
    add_json_option(parser)
    options = parser.parse_args()
    loaders = 2 if options.smoke else options.loaders
    chain = Compose([RandomResizedCrop(64), RandomHorizontalFlip()])
    busy = [subprocess.Popen([sys.executable, "-c", _BUSY]) for _ in range(options.busy)]
    try:
        with tempfile.TemporaryDirectory() as scratch, WorkerPool(options.workers) as pool:
            folder = Path(scratch, "images", "all")
            folder.mkdir(parents=True)
            for number, jpeg in enumerate(load_jpegs(options.data, scratch)[:64]):
                (folder / f"{number:04}.jpg").write_bytes(jpeg)
            dataset = ImageFolderDataset(folder.parent).transform_first(chain)
            kinds: dict[str, Any] = {"process": "process", "pool": pool, "thread": "thread"}
            times: dict[str, list[tuple[float, float]]] = {kind: [] for kind in kinds}
            for _ in range(loaders):
                for kind, executor in kinds.items():
                    times[kind].append(first_batch(dataset, executor, options.workers))
            print("seconds to the first batch; the first loader of a kind apart")
            print("executor     first     median      min      max    close")
            for kind in kinds:
                print(row(kind, times[kind]))
            write_figures(
                options.json,
                [
                    {
                        "executor": kind,
                        "first loader, s": found[0][0],
                        "later loaders, s": spread(first for first, _ in found[1:]),
                    }
                    for kind, found in times.items()
                ],
            )
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    main()
