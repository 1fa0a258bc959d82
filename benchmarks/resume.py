"""First batch of a loader that resumes at 90 % of an epoch, against that of a loader that begins the epoch.

    python -m benchmarks.resume --records 1300000 --rounds 15

A .rec of short records is written to a temporary folder, with its index. In each round a new loader is made for each
place, alternately, and timed from its construction to its first batch; the index's binary copy exists, and the file is
in the page cache.
"""

from __future__ import annotations

import tempfile
import time
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING, Any

import recordio
from aioloader import DataLoader, RecordFileDataset
from benchmarks.figures import ratios, spread
from benchmarks.measurement import in_turns, run

if TYPE_CHECKING:
    from benchmarks.figures import Row

BATCH = 256


def loader_of(path: Path) -> DataLoader[Any]:
    """Return a shuffled loader of the records."""
    return DataLoader(RecordFileDataset(path), BATCH, shuffle=True, executor="inline", num_workers=0)


def first_batch_s(path: Path, state: dict[str, Any] | None) -> float:
    """Return the seconds from opening the file to the first batch."""
    begin = time.perf_counter()
    with loader_of(path) as loader:
        if state is not None:
            loader.load_state_dict(state)
        next(iter(loader))
        return time.perf_counter() - begin


def measure(records: int = 1_300_000, rounds: int = 15) -> list[Row]:
    """Measure both places in turns.

    Args:
        records: of 64 bytes.
        rounds: loaders of each place.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.rec"
        with recordio.RecordWriter(path, index=True) as writer:
            for key in range(records):
                writer.write(key.to_bytes(8, "little") * 8, key)
        with loader_of(path) as loader:
            for _ in islice(loader, records * 9 // 10 // BATCH):
                pass
            state = loader.state_dict()
        ways = {"begun": partial(first_batch_s, path, None), "resumed": partial(first_batch_s, path, state)}
        found = in_turns(ways, rounds)
    return [
        {
            "records": records,
            "first batch from the start, ms": spread(found["begun"], 1e3),
            "first batch from 90 %, ms": spread(found["resumed"], 1e3),
            "ratio": ratios(found["resumed"], found["begun"]),
        }
    ]


if __name__ == "__main__":
    run(measure, records=20_000, rounds=3)
