"""Gluon's loader over arrays in memory: MXNet's and this project's, without workers and with two.

    python -m benchmarks.gluon_loader                 MXNet in a separate environment, made on demand
    python -m benchmarks.gluon_loader --side mxnet    one side, under this interpreter

``DataLoader(ArrayDataset(X), 32, shuffle=True)`` with X of 50,000 x 32 x 32 x 3 bytes; each measurement in a fresh
process, alternating between the sides. The same lines run on both sides; only the import differs.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

SIDES = ("mxnet", "aioloader")
WORKERS = (0, 2)


def batches_per_s(mx: Any, workers: int, seconds: float) -> float:
    """Return batches per second, after some warm-up batches."""
    import numpy as np

    images = np.random.default_rng(0).integers(0, 256, (50_000, 32, 32, 3), np.uint8)
    dataset = mx.gluon.data.ArrayDataset(images)
    loader = mx.gluon.data.DataLoader(dataset, 32, shuffle=True, num_workers=workers)
    count, begin = -200, time.perf_counter()
    while True:
        for batch in loader:
            if count == 0:
                begin = time.perf_counter()
            count += 1
            if count > 0 and count % 64 == 0 and time.perf_counter() - begin > seconds:
                assert batch.shape == (32, 32, 32, 3)
                return count / (time.perf_counter() - begin)


def measure(side: str, python: str, workers: int, seconds: float) -> float:
    """Return the same from a separate process with another interpreter."""
    command = [python, "-m", "benchmarks.gluon_loader", "--side", side]
    command += ["--workers", str(workers), "--seconds", str(seconds)]
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    done = subprocess.run(command, cwd=here, stdout=subprocess.PIPE, check=True, timeout=600)
    return float(done.stdout.split()[-1])


def compare(rounds: int, seconds: float, json_file: Path | None) -> None:
    """Measure all sides and numbers of workers alternately, `rounds` times."""
    from benchmarks.environments import default_folder, ensure
    from benchmarks.figures import spread, write_figures

    rows = []
    pythons = {"aioloader": sys.executable, "mxnet": str(ensure("mxnet", default_folder()))}
    for workers in WORKERS:
        found: dict[str, list[float]] = {side: [] for side in SIDES}
        for number in range(rounds):
            for side in SIDES if number % 2 else reversed(SIDES):
                found[side].append(measure(side, pythons[side], workers, seconds))
        ratios = [ours / theirs for ours, theirs in zip(found["aioloader"], found["mxnet"], strict=True)]
        for side in SIDES:
            print(f"workers {workers}: {side:10} {statistics.median(found[side]):10,.0f} batches/s")
        print(
            f"workers {workers}: ratio      {statistics.median(ratios):10.1f} ({min(ratios):.1f} to {max(ratios):.1f})"
        )
        rates = {f"{side}, batches/s": spread(found[side]) for side in SIDES}
        rows.append({"workers": workers, "times MXNet": spread(ratios), **rates})
    write_figures(json_file, rows)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--side", choices=SIDES, help="measure this side under this interpreter; default: compare both"
    )
    parser.add_argument("--workers", type=int, default=0)
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file too")
    options = parser.parse_args()
    if options.side is None:
        compare(options.rounds, options.seconds, options.json)
        return
    if options.side == "mxnet":
        import mxnet as mx
    else:
        import aioloader.mxnet as mx
    print(batches_per_s(mx, options.workers, options.seconds))


if __name__ == "__main__":
    main()
