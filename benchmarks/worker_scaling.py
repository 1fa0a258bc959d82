"""Images per second with 1 to N workers, of a bare loop in as many processes, and of torch's loader with OpenCV.

    python -m benchmarks.worker_scaling --data FOLDER
    python -m benchmarks.worker_scaling --workers 1 2 4 8 16 --cases jpeg-uint8 faces

The cases are those of ``python -m benchmarks``. Each measurement is a fresh process that may use all cores, so that the
loop of the loader has a core to itself while there are fewer workers than cores. The ways take turns in every round. A
way whose packages are missing is left out.
"""

from __future__ import annotations

import argparse
import importlib.util
import os
import sys
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

from benchmarks.cases import CASES, Case
from benchmarks.data import add_data_option
from benchmarks.figures import Row, add_json_option, ratios, spread, write_figures
from benchmarks.prepare import make_source
from benchmarks.process import run_job

_LIMIT_S = 120.0


class Way(NamedTuple):
    """Way to load.

    Attributes:
        name: in the table.
        contender, variant: of `benchmarks.contenders`.
        workers: name of the setting for the number of workers.
        more: the other settings.
        needs: module without which it is left out.
    """

    name: str
    contender: str
    variant: str
    workers: str
    more: dict[str, Any]
    needs: str = "numpy"


WAYS = (
    Way("aioloader", "aioloader", "process", "num_workers", {"executor": "process"}),
    Way("bare loop", "bare_loop", "", "processes", {}),
    Way("torch", "torch", "opencv", "num_workers", {"prefetch_factor": 2}, "torch"),
)


def rate(way: Way, case: Case, folder: Path, workers: int, seconds: float) -> float:
    """Return images per second of one measurement.

    Raises:
        JobFailure: it failed.
    """
    figures = run_job(
        Path(sys.executable),
        way.contender,
        "measure",
        limit_s=_LIMIT_S,
        cores=_cores(),
        case=case,
        variant=way.variant,
        data=str(folder),
        setting={way.workers: workers, **way.more},
        times={"warm": min(1.0, seconds), "timed": seconds, "lag": 0.0, "memory": 0.0},
        batches=case.least_batches,
    )
    found: float = figures["images_per_s"]
    return found


def measure(case: Case, folder: Path, options: argparse.Namespace) -> list[Row]:
    """Measure one case, print its table and return its rows."""
    ways = [way for way in WAYS if importlib.util.find_spec(way.needs) is not None]
    rates: dict[tuple[str, int], list[float]] = {}
    for _ in range(options.rounds):
        for workers in options.workers:
            for way in ways:
                found = rate(way, case, folder, workers, options.seconds)
                rates.setdefault((way.name, workers), []).append(found)
    print(f"{case.name}: {case.title}")
    print("workers  " + "  ".join(f"{way.name + ', images/s':>22}" for way in ways) + "   of one worker")
    rows: list[Row] = []
    for workers in options.workers:
        mine = rates["aioloader", workers]
        row: Row = {"case": case.name, "workers": workers}
        for way in ways:
            found = rates[way.name, workers]
            row[f"{way.name}, images/s"] = spread(found)
            if found is not mine:
                row[f"times {way.name}"] = ratios(mine, found)
        row["times one worker"] = ratios(mine, rates["aioloader", options.workers[0]])
        cells = (row[f"{way.name}, images/s"] for way in ways)
        shown = "  ".join(f"{middle:10,.0f} ({least:,.0f})".rjust(22) for middle, least, _ in cells)
        print(f"{workers:7}  {shown}   {row['times one worker'][0]:.2f}", flush=True)
        rows.append(row)
    return rows


def _cores() -> list[int]:
    affinity = getattr(os, "sched_getaffinity", None)
    return [] if affinity is None else sorted(affinity(0))


def _powers(most: int) -> list[int]:
    """Return 1, 2, 4 and so on up to `most`."""
    return [1 << bit for bit in range(most.bit_length())]


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="images/s with 1 to N workers")
    add_data_option(parser)
    parser.add_argument(
        "--cases", nargs="+", default=["jpeg-uint8", "faces"], choices=list(CASES), metavar="CASE"
    )
    parser.add_argument(
        "--workers", nargs="+", type=int, metavar="N", help="default: 1, 2, 4 ... up to the number of cores"
    )
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument(
        "--smoke", action="store_true", help="one short round: a check that it runs, not a measurement"
    )
    add_json_option(parser)
    options = parser.parse_args()
    options.workers = options.workers or _powers(len(_cores()) or os.cpu_count() or 1)
    scale = 1.0
    if options.smoke:
        options.rounds, options.seconds, options.workers, scale = 1, 0.2, [1], 0.1
    with tempfile.TemporaryDirectory() as scratch:
        photos = None if options.data is None else Path(options.data)
        rows: list[Row] = []
        for name in options.cases:
            case = CASES[name].scaled(scale)
            source = make_source(case, photos, Path(scratch), lambda line: print(line, file=sys.stderr))
            rows += measure(case, source.folder, options)
        write_figures(options.json, rows)


if __name__ == "__main__":
    main()
