"""Command line of the bare loop (`aioloader.tools.bench`), measured alone.

python -m benchmarks.bare_loop --data FOLDER --workers 2 --seconds 5
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.foundation.host_limits import available_cores
from aioloader.tools.bench import BareLoop
from benchmarks.data import load_jpegs
from benchmarks.measurement import run

if TYPE_CHECKING:
    from benchmarks.figures import Row


def measure(data: str | None = None, workers: int = available_cores(), seconds: float = 5.0) -> list[Row]:
    """Measure images/s of decode, crop, resize and flip, without a loader.

    Args:
        data: folder.
        workers: processes.
        seconds: of the measurement.
    """
    jpegs = load_jpegs(data)
    with BareLoop(jpegs, workers) as loop:
        loop.measure(0.2)  # warms up pages, caches and clock rates
        return [{"bare loop, images/s": loop.measure(seconds), "processes": workers, "files": len(jpegs)}]


if __name__ == "__main__":
    run(measure, seconds=0.5)
