"""Time to open an .idx: with numpy's text parser, with this project's at the first time, and from the cache.

    python benchmarks/index_open.py --lines 1300000 --runs 15

The three are run in turn, so that a busy machine slows all of them alike; medians are printed. "first" is everything
that a first opening does: stat, read, check and parse the text, write the binary copy and sync it.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from benchmarks.figures import add_json_option, spread, write_figures
from recordio import Index

if TYPE_CHECKING:
    from collections.abc import Callable


def timed(call: Callable[[], object]) -> float:
    """Return the seconds that a call takes."""
    begin = time.perf_counter()
    call()
    return time.perf_counter() - begin


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--lines", type=int, default=1_300_000)
    parser.add_argument("--runs", type=int, default=15)
    parser.add_argument("--smoke", action="store_true", help="few lines, one run: a check that it runs")
    parser.add_argument("--record-bytes", type=int, default=110_004, help="distance between two offsets")
    add_json_option(parser)
    options = parser.parse_args()

    if options.smoke:
        options.lines, options.runs = 5000, 1
    folder = Path(tempfile.mkdtemp(prefix="index-open-"))
    os.environ["AIOLOADER_CACHE_DIR"] = str(folder / "cache")
    path = folder / "big.idx"
    offsets = np.arange(options.lines, dtype=np.int64) * options.record_bytes
    path.write_text("".join(f"{key}\t{offset}\n" for key, offset in enumerate(offsets.tolist())))

    def fromstring() -> None:
        pairs = np.fromstring(path.read_bytes(), dtype=np.int64, sep=" ").reshape(-1, 2)
        np.ascontiguousarray(pairs[:, 0]), np.ascontiguousarray(pairs[:, 1])

    def uncached() -> None:
        Index.open(path, cache=False)

    def first() -> None:
        Index.open(path)

    def again() -> None:
        assert Index.open(path).offsets[-1] == offsets[-1]

    times: dict[str, list[float]] = {"np.fromstring": [], "parse": [], "first": [], "cached": []}
    try:
        for _ in range(options.runs):
            shutil.rmtree(folder / "cache", ignore_errors=True)
            times["np.fromstring"].append(timed(fromstring))
            times["parse"].append(timed(uncached))
            times["first"].append(timed(first))
            times["cached"].append(timed(again))
    finally:
        shutil.rmtree(folder)

    medians = {name: statistics.median(values) for name, values in times.items()}
    print(f"{options.lines} lines, median of {options.runs} runs in turn")
    for name, what in (
        ("np.fromstring", "read and np.fromstring, nothing checked"),
        ("parse", "Index.open without a cache, everything checked"),
        ("first", "Index.open that also writes its binary copy"),
        ("cached", "Index.open from the binary copy"),
    ):
        share = medians[name] / medians["np.fromstring"]
        print(f"{what:50} {medians[name] * 1e3:9.3f} ms  {share:7.4f} x np.fromstring")
    print(f"cached against np.fromstring: {medians['np.fromstring'] / medians['cached']:.0f} x faster")
    print(f"cached against first: {medians['first'] / medians['cached']:.0f} x faster")
    write_figures(
        options.json,
        [
            {"way": name, "s": spread(found), "of np.fromstring": medians[name] / medians["np.fromstring"]}
            for name, found in times.items()
        ],
    )


if __name__ == "__main__":
    main()
