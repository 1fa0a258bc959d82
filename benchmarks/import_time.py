"""Time of `import aioloader` and of `import numpy`, which is most of it; fresh interpreters, alternately.

    python -m benchmarks.import_time --rounds 15

Modules are compiled beforehand, as after the first start of a program. Figures are seconds that the statement takes;
the start of Python itself is excluded.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from functools import partial
from typing import TYPE_CHECKING

from benchmarks.figures import spread
from benchmarks.measurement import in_turns, run

if TYPE_CHECKING:
    from collections.abc import Iterator

    from benchmarks.figures import Row

STATEMENTS = ("import numpy", "import aioloader", "import aioloader.mxnet", "import recordio")
_PROGRAM = "import time; begin = time.perf_counter(); {}; print(time.perf_counter() - begin)"


def taken(statement: str, compiled: str) -> float:
    """Return the seconds of a statement in a fresh interpreter, whose compiled modules are in a folder."""
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    command = [sys.executable, "-c", _PROGRAM.format(statement)]
    environment["PYTHONPYCACHEPREFIX"] = compiled
    return float(subprocess.run(command, env=environment, check=True, capture_output=True).stdout)


def measure(rounds: int = 15) -> Iterator[Row]:
    """Measure the statements in turns.

    Args:
        rounds: interpreters of each.
    """
    with tempfile.TemporaryDirectory() as compiled:
        found = in_turns({each: partial(taken, each, compiled) for each in STATEMENTS}, rounds)
    for statement, seconds in found.items():
        yield {"statement": statement, "s": spread(seconds)}


if __name__ == "__main__":
    run(measure, rounds=1)
