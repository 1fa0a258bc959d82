"""Fuzzing: damaged inputs for all readers of external bytes.

    python -m tests.fuzz                      20,000 inputs of every target
    python -m tests.fuzz records jpeg --long  ten million inputs of the record parser, 200,000 of the JPEG cutter
    python -m tests.fuzz jpeg --coverage      which branches the inputs reach (needs the package coverage)

Inputs are made from valid ones by a few faults, most of them after the first record or header. A wrong result, an
undocumented error, a warning, a crash or a hang is a finding: it is reduced, written to tests/fuzz/corpus, and tried by
the test suite from then on.
"""

from __future__ import annotations

import argparse
import sys
from importlib.util import find_spec
from pathlib import Path

from aioloader.foundation.host_limits import available_cores
from tests.fuzz.runner import run
from tests.fuzz.target import ROOT, Tally, keep
from tests.fuzz.targets import TARGETS, load


def main() -> int:
    """Run from the command line; return the exit code, 1 if there are findings."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.fuzz", description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)}; all of them")
    parser.add_argument("--inputs", type=int, metavar="N", help="how many of each target (20,000)")
    parser.add_argument("--long", action="store_true", help="as many as a long run takes, of each target")
    parser.add_argument(
        "--seconds", type=float, default=float("inf"), metavar="S", help="most of each target"
    )
    parser.add_argument("--seed", type=int, default=0, metavar="N", help="of the inputs")
    parser.add_argument("--processes", type=int, default=available_cores(), metavar="N", help="at a time")
    parser.add_argument("--hang", type=float, default=20.0, metavar="S", help="an input may take so long")
    parser.add_argument("--coverage", action="store_true", help="print the branches that are reached")
    options = parser.parse_args()
    names = options.targets or list(TARGETS)
    for name in names:
        if name not in TARGETS:
            parser.error(f"there is no target {name!r}; there are {', '.join(TARGETS)}")
    if options.coverage and find_spec("coverage") is None:
        parser.error("--coverage needs the package coverage: pip install -e '.[dev]'")
    code = 0
    for name in names:
        if (needed := TARGETS[name].needs) and find_spec(needed) is None:
            if options.targets:
                parser.error(f"the target {name!r} needs the package {needed}: pip install {needed}")
            print(f"{name}: skipped, the package {needed} is not installed")
            continue
        inputs = options.inputs or (TARGETS[name].long if options.long else 20_000)
        if options.coverage:
            _cover(name, inputs, options.seed)
            continue
        tally = run(
            name,
            inputs=inputs,
            seconds=options.seconds,
            seed=options.seed,
            processes=options.processes,
            hang_s=options.hang,
        )
        code |= _report(name, tally)
    return code


def _report(name: str, tally: Tally) -> int:
    rate = tally.inputs / max(tally.seconds, 1e-9)
    past = tally.share(load(name).past)
    print(
        f"{name}: {tally.inputs:,} inputs in {tally.seconds:,.0f} s, {rate:,.0f}/s; {past:.0%} got past the first"
    )
    words = sorted(tally.outcomes.items(), key=lambda item: -item[1])
    print("  " + ", ".join(f"{word} {count:,}" for word, count in words))
    for place, found in tally.found.items():
        path = keep(name, found.data)
        print(f"  FINDING {place}\n    {path.relative_to(ROOT)}, {len(found.data)} bytes")
        print("    " + "\n    ".join(found.text.strip().splitlines()[-12:]))
    sys.stdout.flush()
    return 1 if tally.found else 0


def _cover(name: str, inputs: int, seed: int) -> None:
    """Measure the branches that the inputs reach, in this process; the modules must not be loaded before it begins."""
    import subprocess

    covers = [str(Path(ROOT, file)) for file in TARGETS[name].covers]
    code = (
        "import os, sys, coverage\n"
        "measured = coverage.Coverage(branch=True, include=sys.argv[4:], data_file=None, config_file=False)\n"
        "measured.start()\n"
        "from tests.fuzz.targets import load\n"
        "from tests.fuzz.target import attempt, corpus_of\n"
        "from tests.fuzz.worker import try_inputs\n"
        "os.environ['AIOLOADER_CACHE_DIR'] = os.path.join(os.devnull, 'none')\n"
        "target = load(sys.argv[1])\n"
        "tally = try_inputs(target, int(sys.argv[2]), sys.argv[3], float('inf'))\n"
        "for path in corpus_of(sys.argv[1]):\n"
        "    attempt(target, path.read_bytes(), tally)\n"
        "measured.stop()\n"
        "print(f'{sys.argv[1]}: {tally.inputs:,} inputs, {len(tally.found)} findings')\n"
        "measured.report(show_missing=True)\n"
    )
    command = [sys.executable, "-c", code, name, str(inputs), str(seed), *covers]
    subprocess.run(command, cwd=ROOT, check=True, stderr=subprocess.DEVNULL)


if __name__ == "__main__":
    raise SystemExit(main())
