"""First batch of a loader that resumes at 90 % of an epoch, against that of a loader that begins the epoch.

    python -m benchmarks.resume
    python -m benchmarks.resume --records 1300000 --rounds 15

A .rec of short records is written to a temporary folder, with its index. In each round a new loader is made for each
place, alternately, and timed from its construction to its first batch; the index's binary copy exists, and the file is
in the page cache.
"""

from __future__ import annotations

import argparse
import statistics
import tempfile
import time
from pathlib import Path
from typing import Any

import recordio
from aioloader import DataLoader, RecordFileDataset
from benchmarks.figures import add_json_option, spread, write_figures

BATCH = 256


def write_records(path: Path, records: int) -> None:
    """Write records of 64 bytes, and their index."""
    with recordio.RecordWriter(path, index=path.with_suffix(".idx")) as writer:
        for key in range(records):
            writer.write(key.to_bytes(8, "little") * 8, key)


def first_batch_s(path: Path, state: dict[str, Any] | None) -> float:
    """Return the seconds from opening the file to the first batch."""
    begin = time.perf_counter()
    with DataLoader(RecordFileDataset(path), BATCH, shuffle=True, executor="inline", num_workers=0) as loader:
        if state is not None:
            loader.load_state_dict(state)
        next(iter(loader))
        return time.perf_counter() - begin


def state_at(path: Path, batches: int) -> dict[str, Any]:
    """Return the state after `batches` delivered batches of the first epoch."""
    with DataLoader(RecordFileDataset(path), BATCH, shuffle=True, executor="inline", num_workers=0) as loader:
        passing = iter(loader)
        for _ in range(batches):
            next(passing)
        return loader.state_dict()


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("--records", type=int, default=1_300_000)
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument("--smoke", action="store_true", help="few records: a check that it runs")
    add_json_option(parser)
    options = parser.parse_args()
    if options.smoke:
        options.records, options.rounds = 20_000, 3
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "records.rec"
        write_records(path, options.records)
        state = state_at(path, options.records * 9 // 10 // BATCH)
        begun, resumed = [], []
        for number in range(options.rounds + 1):
            # Alternately, and each one first as often as second.
            for at_start in (True, False) if number % 2 else (False, True):
                seconds = first_batch_s(path, None if at_start else state)
                if number:  # the first round warms up
                    (begun if at_start else resumed).append(seconds)
    ratios = sorted(late / early for early, late in zip(begun, resumed, strict=True))
    print(
        f"{options.records:,} records, batches of {BATCH}, median (minimum to maximum) of {options.rounds} rounds"
    )
    print(f"first batch from the start   {1e3 * statistics.median(begun):.2f} ms")
    print(f"first batch from 90 %        {1e3 * statistics.median(resumed):.2f} ms")
    print(
        f"ratio                        {statistics.median(ratios):.2f} ({ratios[0]:.2f} to {ratios[-1]:.2f})"
    )
    write_figures(
        options.json,
        [
            {
                "records": options.records,
                "first batch from the start, ms": spread(begun, 1e3),
                "first batch from 90 %, ms": spread(resumed, 1e3),
                "ratio": spread(ratios),
            }
        ],
    )


if __name__ == "__main__":
    main()
