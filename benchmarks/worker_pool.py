"""Time to the first batch of a new loader, with new worker processes and with those of a pool.

    python -m benchmarks.worker_pool --loaders 10 --workers 4 --busy 8

One loader after the other is made over a set of JPEGs, as for the folds of a validation or for every epoch. Each is
asked for its first batch and closed: with ``executor="process"``, with a `WorkerPool`, and with threads. The first
loader of each kind is shown apart: it starts the processes in all cases.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any

from aioloader import DataLoader, ImageFolderDataset
from aioloader.executors import WorkerPool
from aioloader.transforms import Compose, RandomHorizontalFlip, RandomResizedCrop
from benchmarks.data import lay_out, load_jpegs
from benchmarks.figures import spread
from benchmarks.measurement import in_turns, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.figures import Row


def first_batch(dataset: Any, executor: Any, workers: int) -> float:
    """Return the seconds to the first batch of a new loader."""
    begin = perf_counter()
    with DataLoader(dataset, 16, shuffle=True, executor=executor, num_workers=workers) as loader:
        next(iter(loader))
        return perf_counter() - begin


def measure(data: str | None = None, loaders: int = 7, workers: int = 2, busy: int = 0) -> Iterator[Row]:
    """Measure the kinds of executors in turns.

    Args:
        data: folder.
        loaders: of each kind.
        workers: of each loader.
        busy: processes that keep the machine busy meanwhile.
    """
    spinning = [subprocess.Popen([sys.executable, "-c", "while True: pass"]) for _ in range(busy)]
    try:
        with tempfile.TemporaryDirectory() as scratch, WorkerPool(workers) as pool:
            chain = Compose([RandomResizedCrop(64), RandomHorizontalFlip()])
            root = lay_out(load_jpegs(data)[:64], Path(scratch, "images"), 1)
            dataset = ImageFolderDataset(root).transform_first(chain)
            kinds: dict[str, Any] = {"process": "process", "pool": pool, "thread": "thread"}
            ways = {
                kind: partial(first_batch, dataset, executor, workers) for kind, executor in kinds.items()
            }
            for kind, found in in_turns(ways, loaders, warm=0).items():
                yield {
                    "executor": kind,
                    "first loader, s": found[0],
                    "later loaders, s": spread(found[1:]),
                }
    finally:
        for process in spinning:
            process.kill()
            process.wait()


if __name__ == "__main__":
    run(measure, loaders=2)
