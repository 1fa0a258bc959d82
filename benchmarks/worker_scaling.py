"""Images per second with 1 to N workers, of a bare loop in as many processes, and of torch's loader with OpenCV.

    python -m benchmarks.worker_scaling --data FOLDER --workers 1 2 4 8 16 --cases jpeg-uint8 faces

The cases are those of ``python -m benchmarks``. Each measurement is a fresh process that may use all cores, so that the
loop of the loader has a core to itself while there are fewer workers than cores. The ways take turns in every round. A
way whose packages are missing is left out.
"""

from __future__ import annotations

import importlib.util
import os
import sys
import tempfile
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cases import CASES, Case
from benchmarks.figures import costs, ratios
from benchmarks.measurement import in_turns, run
from benchmarks.prepare import make_source
from benchmarks.process import run_job

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.figures import Row

_CORES = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else []
_MOST = len(_CORES) or os.cpu_count() or 1

# (contender, variant, name of the setting for the number of workers, other settings, module that it needs)
WAYS: dict[str, tuple[str, str, str, dict[str, Any], str]] = {
    "aioloader": ("aioloader", "process", "num_workers", {"executor": "process"}, "numpy"),
    "bare loop": ("bare_loop", "", "processes", {}, "numpy"),
    "torch": ("torch", "opencv", "num_workers", {"prefetch_factor": 2}, "torch"),
}


def rate(way: str, case: Case, folder: Path, workers: int, seconds: float) -> tuple[float, float]:
    """Return images per second of one measurement, and CPU seconds an image.

    Raises:
        JobFailure: it failed.
    """
    contender, variant, number, more, _ = WAYS[way]
    times = {"warm": min(1.0, seconds), "timed": seconds, "lag": 0.0, "memory": 0.0}
    request = {"variant": variant, "setting": {number: workers, **more}, "data": str(folder), "times": times}
    figures = run_job(
        Path(sys.executable),
        contender,
        "measure",
        limit_s=120.0,
        cores=_CORES,
        case=case,
        batches=case.least_batches,
        **request,
    )
    return figures["images_per_s"], figures["cpu_s"] / figures["images_per_s"]


def measure(
    data: Path | None = None,
    cases: Sequence[str] = ("jpeg-uint8", "faces"),
    workers: Sequence[int] = tuple(1 << bit for bit in range(_MOST.bit_length())),
    rounds: int = 3,
    seconds: float = 2.0,
    scale: float = 1.0,
) -> Iterator[Row]:
    """Measure the ways of each case in turns, with each number of workers.

    Args:
        data: folder.
        cases: some of ``python -m benchmarks``.
        workers: their numbers.
        rounds: measurements of each.
        seconds: of each measurement.
        scale: length of the epochs.
    """
    ways = [way for way in WAYS if importlib.util.find_spec(WAYS[way][-1]) is not None]
    with tempfile.TemporaryDirectory() as scratch:
        for name in cases:
            case = CASES[name].scaled(scale)
            folder = make_source(case, data and Path(data), Path(scratch), print).folder
            turns = {
                (way, number): partial(rate, way, case, folder, number, seconds)
                for number in workers
                for way in ways
            }
            found = in_turns(turns, rounds, warm=0)
            rates = {turn: [rate for rate, _ in each] for turn, each in found.items()}
            for number in workers:
                mine = rates["aioloader", number]
                row: Row = {"case": name, "workers": number}
                for way in ways:
                    row |= costs(found[way, number], way)
                    if way != "aioloader":
                        row[f"times {way}"] = ratios(mine, rates[way, number])
                yield {**row, "times one worker": ratios(mine, rates["aioloader", workers[0]])}


if __name__ == "__main__":
    run(measure, rounds=1, seconds=0.2, workers=[1], scale=0.1)
