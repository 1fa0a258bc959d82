"""Time from making a loader to its first batch: the start of the workers included, imports not, the index cached.

    python -m benchmarks.first_batch --data FOLDER

Executors take turns; every loader is new. A warm-up round, which is not counted, does all lazy imports.
"""

from __future__ import annotations

import tempfile
from functools import partial
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import aioloader
from aioloader import transforms
from aioloader.foundation.host_limits import available_cores
from benchmarks.data import load_jpegs, write_rec
from benchmarks.figures import spread
from benchmarks.measurement import in_turns, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.figures import Row


def first_batch(rec: Path, executor: str, workers: int, batch_size: int) -> float:
    """Return the seconds from making the loader to its first batch."""
    augment = transforms.Compose([transforms.RandomResizedCrop(224), transforms.RandomHorizontalFlip()])
    begin = perf_counter()
    dataset = aioloader.ImageRecordDataset(rec).transform_first(augment)
    number = None if executor == "inline" else workers
    with aioloader.DataLoader(dataset, batch_size, executor=executor, num_workers=number) as loader:
        next(iter(loader))
        return perf_counter() - begin


def measure(
    data: str | None = None, workers: int = available_cores(), batch_size: int = 64, rounds: int = 7
) -> Iterator[Row]:
    """Measure the executors in turns.

    Args:
        data: folder.
        workers: of threads and processes.
        batch_size: of the first batch.
        rounds: loaders of each executor.
    """
    with tempfile.TemporaryDirectory() as scratch:
        rec = Path(scratch, "images.rec")
        write_rec(rec, load_jpegs(data), 1)
        executors = ("inline", "thread", "process")
        ways = {name: partial(first_batch, rec, name, workers, batch_size) for name in executors}
        for name, found in in_turns(ways, rounds).items():
            yield {"executor": name, "first batch, s": spread(found)}


if __name__ == "__main__":
    run(measure, rounds=1)
