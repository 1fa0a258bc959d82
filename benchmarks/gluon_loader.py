"""Gluon's loader over arrays in memory: MXNet's and this project's, without workers and with two.

    python -m benchmarks.gluon_loader                 MXNet in a separate environment, made on demand
    python -m benchmarks.gluon_loader --side mxnet    one side, under this interpreter

``DataLoader(ArrayDataset(X), 32, shuffle=True)`` with X of 50,000 x 32 x 32 x 3 bytes; each measurement in a fresh
process, alternating between the sides. The same lines run on both sides; only the import differs.
"""

from __future__ import annotations

import importlib
import time
from functools import partial
from typing import TYPE_CHECKING, Any

from benchmarks.figures import ratios, spread
from benchmarks.measurement import in_turns, rate_of_side, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.figures import Row

SIDES = {"mxnet": "mxnet", "aioloader": "aioloader.mxnet"}


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


def measure(
    side: str | None = None, workers: int = 0, seconds: float = 2.0, rounds: int = 5
) -> Iterator[Row]:
    """Measure one side and print its rate, or all sides and numbers of workers in turns.

    Args:
        side: "mxnet" or "aioloader", under this interpreter; default: both.
        workers: of one side.
        seconds: of a measurement.
        rounds: measurements of each side.
    """
    if side:
        print(batches_per_s(importlib.import_module(SIDES[side]), workers, seconds))
        return
    for number in (0, 2):
        words = ("--workers", str(number), "--seconds", str(seconds))
        ways = {name: partial(rate_of_side, "gluon_loader", name, *words) for name in SIDES}
        found = in_turns(ways, rounds, warm=0)
        rates = {f"{name}, batches/s": spread(found[name]) for name in SIDES}
        yield {"workers": number, "times MXNet": ratios(found["aioloader"], found["mxnet"]), **rates}


if __name__ == "__main__":
    run(measure, rounds=1, seconds=0.2)
