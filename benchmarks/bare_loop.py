"""Command line of the bare loop (`aioloader.tools.bench`), measured alone.

python -m benchmarks.bare_loop --data FOLDER --workers 2 --seconds 5
"""

from __future__ import annotations

import argparse
import tempfile

from aioloader.foundation.host_limits import available_cores
from aioloader.tools.bench import BareLoop
from benchmarks.data import add_data_option, load_jpegs


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(
        description="images/s of decode, crop, resize and flip, without a loader"
    )
    add_data_option(parser)
    parser.add_argument(
        "--workers", type=int, default=available_cores(), help="processes; default: one per core"
    )
    parser.add_argument("--seconds", type=float, default=5.0)
    parser.add_argument(
        "--smoke", action="store_true", help="half a second: a check that it runs, not a measurement"
    )
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        jpegs = load_jpegs(options.data, scratch)
    with BareLoop(jpegs, options.workers) as loop:
        loop.measure(0.2)  # warms up pages, caches and clock rates
        rate = loop.measure(0.5 if options.smoke else options.seconds)
    print(f"bare loop: {rate:,.0f} images/s, {options.workers} processes, {len(jpegs)} files")


if __name__ == "__main__":
    main()
