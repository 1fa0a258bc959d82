"""Time of `import aioloader` and of `import numpy`, which is most of it; fresh interpreters, alternately.

    python -m benchmarks.import_time --rounds 15

Modules are compiled beforehand, as after the first start of a program. Medians of the seconds that the statement takes;
the start of Python itself is excluded. The limit is 0.3 s, and the import must not load any large library.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from statistics import median

from benchmarks.figures import add_json_option, spread, write_figures

STATEMENTS = ("import numpy", "import aioloader", "import aioloader.mxnet", "import recordio")
HEAVY = ("torch", "jax", "tensorflow", "ray", "cv2", "starlette", "uvicorn", "obstore", "rich", "tqdm")
_PROGRAM = """
import json, sys, time
begin = time.perf_counter()
{statement}
seconds = time.perf_counter() - begin
print(json.dumps([seconds, [name for name in {heavy!r} if name in sys.modules]]))
"""


def taken(statement: str, compiled: str) -> tuple[float, list[str]]:
    """Return the seconds of a statement in a fresh interpreter, and the large libraries loaded by it.

    Args:
        statement: Python.
        compiled: a folder for compiled modules.
    """
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    environment["PYTHONPYCACHEPREFIX"] = compiled
    program = _PROGRAM.format(statement=statement, heavy=HEAVY)
    done = subprocess.run(
        [sys.executable, "-c", program], env=environment, check=True, capture_output=True, text=True
    )
    seconds, heavy = json.loads(done.stdout)
    return seconds, heavy


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="time of the import")
    parser.add_argument("--rounds", type=int, default=15)
    parser.add_argument(
        "--smoke", action="store_true", help="one round: a check that it runs, not a measurement"
    )
    add_json_option(parser)
    options = parser.parse_args()
    if options.smoke:
        options.rounds = 1
    print(f"median of {options.rounds} rounds")
    seconds: dict[str, list[float]] = {statement: [] for statement in STATEMENTS}
    unasked: dict[str, list[str]] = {}
    with tempfile.TemporaryDirectory() as compiled:
        for statement in STATEMENTS:
            taken(statement, compiled)  # compiles the modules
        for _ in range(options.rounds):
            for statement, each in seconds.items():
                took, unasked[statement] = taken(statement, compiled)
                each.append(took)
    for statement, each in seconds.items():
        print(
            f"{statement:24} {median(each):.3f} s ({min(each):.3f} to {max(each):.3f})  "
            f"large libraries: {', '.join(unasked[statement]) or 'none'}"
        )
    write_figures(
        options.json, [{"statement": statement, "s": spread(each)} for statement, each in seconds.items()]
    )


if __name__ == "__main__":
    main()
