"""Fuzzing: damaged inputs for all readers of external bytes.

    python -m tests.fuzz                                20,000 inputs of every target
    python -m tests.fuzz records --inputs 10_000_000    many of one

Inputs are made from valid ones by a few faults, most of them after the first record or header. A wrong result, an
undocumented error, a warning, or an input that takes longer than 20 s is a finding: it is reduced, written to
tests/fuzz/corpus, and tried by the test suite from then on. If the process crashes, or a library does not return, the
stack is printed, and the input is in the file that is named first.
"""

from __future__ import annotations

import argparse
import faulthandler
import os
import resource
import signal
import sys
import tempfile
import time
import warnings
from importlib.util import find_spec
from itertools import islice
from typing import Any

from tests.fuzz.target import (
    NEEDS,
    NOWHERE,
    ROOT,
    TARGETS,
    Tally,
    attempt,
    corpus_of,
    keep,
    load,
    new_inputs,
)

_HANG_S = 20
_MORE_MEMORY = 1 << 33
"""Address space that may be added; an allocation of any announced size fails then."""


def main() -> int:
    """Run from the command line; return the exit code, 1 if there are findings."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all of them")
    parser.add_argument("--inputs", type=int, default=20_000, metavar="N", help="how many of each target")
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the inputs")
    options = parser.parse_args()
    if unknown := set(options.targets) - set(TARGETS):
        parser.error(f"there is no target {unknown.pop()!r}; there are {', '.join(TARGETS)}")
    os.environ["AIOLOADER_CACHE_DIR"] = NOWHERE
    return max(_run(name, options.inputs, options.seed) for name in options.targets or TARGETS)


def _run(name: str, inputs: int, seed: int) -> int:
    if name in NEEDS and find_spec(NEEDS[name]) is None:
        print(f"{name}: skipped, the package {NEEDS[name]} is not installed")
        return 0
    target, tally, begin = load(name), Tally(), time.monotonic()
    with warnings.catch_warnings(), tempfile.NamedTemporaryFile(prefix=f"fuzz-{name}-", delete=False) as file:
        print(f"{name}: the input that is tried is in {file.name}", flush=True)
        warnings.simplefilter("error")
        with open("/proc/self/statm") as held:
            most = int(held.read().split()[0]) * resource.getpagesize() + _MORE_MEMORY
        resource.setrlimit(resource.RLIMIT_AS, (most, resource.getrlimit(resource.RLIMIT_AS)[1]))
        signal.signal(signal.SIGALRM, _end)
        # Python's handler waits until a library returns, this one does not.
        faulthandler.enable()
        faulthandler.register(signal.SIGVTALRM, chain=True)
        for data in islice(new_inputs(target, corpus_of(name), seed), inputs):
            os.ftruncate(file.fileno(), 0)
            os.pwrite(file.fileno(), data, 0)
            signal.setitimer(signal.ITIMER_REAL, _HANG_S)
            signal.setitimer(signal.ITIMER_VIRTUAL, 3 * _HANG_S)
            attempt(target, data, tally)
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.setitimer(signal.ITIMER_VIRTUAL, 0)
    os.unlink(file.name)
    seconds = time.monotonic() - begin
    print(f"{name}: {inputs:,} inputs in {seconds:,.0f} s; {tally.past / inputs:.0%} got past the first")
    for place, (data, text) in tally.found.items():
        print(f"  FINDING {place}\n    {keep(name, data).relative_to(ROOT)}, {len(data)} bytes")
        print("    " + "\n    ".join(text.strip().splitlines()[-12:]))
    sys.stdout.flush()
    return 1 if tally.found else 0


def _end(*_: Any) -> None:
    raise TimeoutError(f"no end within {_HANG_S} s")


if __name__ == "__main__":
    raise SystemExit(main())
