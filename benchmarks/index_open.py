"""Time to open an .idx: with numpy's text parser, with this project's at the first time, and from the cache.

    python -m benchmarks.index_open --lines 1300000 --rounds 15

The ways take turns, so that a busy machine slows all of them alike. "parse" opens it without a cache; "first" is
everything that a first opening does: stat, read, check and parse the text, write the binary copy and sync it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING

import numpy as np

from benchmarks.figures import spread
from benchmarks.measurement import run, seconds_of
from recordio import Index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.figures import Row


def measure(lines: int = 1_300_000, rounds: int = 15, record_bytes: int = 110_004) -> Iterator[Row]:
    """Measure the ways in turns.

    Args:
        lines: of the index.
        rounds: openings of each way.
        record_bytes: distance between two offsets.
    """
    times: dict[str, list[float]] = {"np.fromstring": [], "parse": [], "first": [], "cached": []}
    with tempfile.TemporaryDirectory() as folder:
        path, cache = Path(folder, "big.idx"), Path(folder, "cache")
        os.environ["AIOLOADER_CACHE_DIR"] = str(cache)
        path.write_text("".join(f"{key}\t{key * record_bytes}\n" for key in range(lines)))

        def fromstring() -> None:
            pairs = np.fromstring(path.read_bytes(), dtype=np.int64, sep=" ").reshape(-1, 2)
            np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])

        for _ in range(rounds):
            shutil.rmtree(cache, ignore_errors=True)
            times["np.fromstring"].append(seconds_of(fromstring))
            times["parse"].append(seconds_of(lambda: Index.open(path, cache=False)))
            times["first"].append(seconds_of(lambda: Index.open(path)))
            times["cached"].append(seconds_of(lambda: Index.open(path)))
        assert Index.open(path).offsets[-1] == (lines - 1) * record_bytes
    base = median(times["np.fromstring"])
    for name, found in times.items():
        yield {"way": name, "s": spread(found), "of np.fromstring": median(found) / base}


if __name__ == "__main__":
    run(measure, lines=5000, rounds=1)
