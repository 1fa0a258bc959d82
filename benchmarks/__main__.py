"""``python -m benchmarks``: this loader, other loaders and the bare loop, measured in one run.

    python -m benchmarks --quick                     five minutes, with the installed contenders
    python -m benchmarks --data FOLDER --out RUN     everything; two hours
    python -m benchmarks --data FOLDER --out RUN --settings benchmarks/results/DATE.json
                                                     with the best settings of an earlier run; an hour and a half
    python -m benchmarks --out RUN --resume          continue an interrupted run
    python -m benchmarks --out RUN --report          only write the report of an earlier run

Progress goes to standard error. Ctrl-C ends the run and writes the report of the finished measurements.
"""

from __future__ import annotations

import datetime
import os
import platform
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aioloader.foundation.version import __version__
from aioloader.tools.pack import list_images
from benchmarks.cases import chosen
from benchmarks.environments import default_folder, names, ready
from benchmarks.log import Log, read_log
from benchmarks.measurement import parser_of
from benchmarks.report import write_report
from benchmarks.results import KeptSettings
from benchmarks.runner import Plan, Runner

if TYPE_CHECKING:
    from collections.abc import Sequence

_QUICK_CASES = ("jpeg-uint8", "faces", "arrays", "bytes")
_QUICK_CONTENDERS = (
    *("aioloader/process", "aioloader/crop-index", "aioloader/thread", "aioloader/inline", "bare_loop"),
    *("torch/opencv", "torch/plain", "tf_data"),
)
_QUICK_LIMIT_S = 240.0  # a measurement under way and the report fit into the rest of five minutes
_ENVIRONMENTS = default_folder()
_SAME = ("cores", "seconds", "scale", "data")


@dataclass
class Options:
    """Options of the command line.

    Attributes:
        quick: few cases, installed contenders only, five minutes
        cases: some of the cases; default: all
        contenders: NAME or NAME/VARIANT; default: all
        rounds: default: 5; quick: 3
        seconds: seconds of a measurement; default: 4; quick: 1
        cores: cores to use
        data: folder of photographs (JPEG); default: drawn images
        scale: length of the epochs; default: 1; quick: 0.25
        out: folder for the results
        envs: folder for the contenders' environments
        scratch: folder for prepared data
        settings: take settings from these results of an earlier run where all packages have the same versions
        resume: continue the run in --out
        report: measure nothing, only write the report
        seed: seed of the order of turns
    """

    quick: bool = False
    cases: Sequence[str] = ()
    contenders: Sequence[str] = ()
    rounds: int | None = None
    seconds: float | None = None
    cores: int = 2
    data: Path | None = None
    scale: float | None = None
    out: Path = Path("benchmark-results")
    envs: Path = _ENVIRONMENTS
    scratch: Path = _ENVIRONMENTS.parent / "data"
    settings: Path | None = None
    resume: bool = False
    report: bool = False
    seed: int = 0


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line.

    Returns:
        the exit code: 0 if there are measurements, 130 after Ctrl-C.
    """
    words = list(sys.argv[1:] if argv is None else argv)
    options = Options(**vars(parser_of(Options).parse_args(words)))
    path = options.out / "log.jsonl"
    code = 0
    try:
        if not options.report:
            code = _measure(options, path, words)
        written = write_report(read_log(path), options.out)
    except (ValueError, OSError) as error:
        print(f"benchmarks: error: {error}", file=sys.stderr)
        return 2
    for file in written:
        print(file)
    return code


def _measure(options: Options, path: Path, words: list[str]) -> int:
    plan = _plan(options)
    run = {
        "command": _command(words),
        "date": datetime.date.today().isoformat(),
        "version": __version__,
        "machine": describe_machine(),
        "cores": list(plan.cores),
        "cases": [case.name for case in plan.cases],
        "contenders": list(plan.contenders),
        "rounds": plan.rounds,
        "seconds": plan.seconds,
        "scale": options.scale,
        "data": describe_data(plan.photos),
        "settings": options.settings and options.settings.name,
    }
    _check_resume(options.resume, path, run)
    log = Log(path, options.resume)
    log.add("run", **run)
    try:
        Runner(plan, log).run()
    except KeyboardInterrupt:
        print("benchmarks: interrupted; writing the report of the finished measurements", file=sys.stderr)
        return 130
    finally:
        log.close()
    return 0


def _plan(options: Options) -> Plan:
    quick = options.quick
    if options.scale is None:
        options.scale = 0.25 if quick else 1.0
    available = sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [0]
    if not 1 <= options.cores <= len(available):
        raise ValueError(f"--cores must be 1 to {len(available)} on this machine, got {options.cores}")
    if options.data is not None and not options.data.is_dir():
        raise ValueError(
            f"folder {options.data} does not exist; pass --data an existing folder of JPEG files"
        )
    return Plan(
        cases=chosen(options.cases or (_QUICK_CASES if quick else ()), options.scale),
        contenders=_contenders(options.contenders, quick, options.envs),
        rounds=options.rounds or (3 if quick else 5),
        seconds=options.seconds or (1.0 if quick else 4.0),
        sweep=not quick,
        install=bool(options.contenders) or not quick,
        cores=tuple(available[: options.cores]),
        photos=options.data,
        scratch=options.scratch,
        environments=options.envs,
        limit_s=_QUICK_LIMIT_S if quick else None,
        seed=options.seed,
        kept=None if options.settings is None else KeptSettings(options.settings),
    )


def _contenders(wanted: Sequence[str], quick: bool, environments: Path) -> tuple[str, ...]:
    known = names()
    for contender in wanted:
        if contender.partition("/")[0] not in known:
            raise ValueError(f"unknown contender {contender!r}; choose from: {', '.join(known)}")
    if wanted:
        return tuple(wanted)
    if quick:
        return tuple(name for name in _QUICK_CONTENDERS if ready(name.partition("/")[0], environments))
    found = list(known)
    # Every figure is compared with these two, so they come first: a run with a time limit must not miss them.
    first = [name for name in ("aioloader", "bare_loop") if name in found]
    return (*first, *(name for name in found if name not in first))


def _check_resume(resume: bool, path: Path, run: dict[str, Any]) -> None:
    """Raise ValueError if the options differ from those of the run to resume; copy its command otherwise."""
    if not resume or not path.exists():
        return
    before = next((record for record in read_log(path) if record["kind"] == "run"), None)
    if before is None:
        return
    for name in _SAME:
        if before.get(name) != run[name]:
            raise ValueError(f"--resume needs the same {name} as before: {before.get(name)}, not {run[name]}")
    run["command"] = before["command"]


def _command(words: list[str]) -> str:
    """Return the command for the report, without the options that name this user's folders."""
    shown, rest = ["python", "-m", "benchmarks"], iter(words)
    for word in rest:
        name, joined, _ = word.partition("=")
        if name in ("--out", "--envs", "--scratch"):
            if not joined:
                next(rest, None)
        elif name == "--data":
            shown += ["--data", "FOLDER"]
            if not joined:
                next(rest, None)
        elif word != "--resume":
            shown.append(word)
    return shlex.join(shown)


def describe_machine() -> dict[str, str]:
    """Return processor, system and Python of this machine."""
    cpu = platform.processor() or platform.machine()
    try:
        with open("/proc/cpuinfo") as file:
            cpu = next(line.partition(":")[2].strip() for line in file if line.startswith("model name"))
    except (OSError, StopIteration):
        pass
    return {
        "cpu": cpu,
        "system": f"{platform.system()} {platform.release().partition('-')[0]}",
        "python": platform.python_version(),
    }


def describe_data(photos: Path | None) -> str:
    """Return number and mean size of the photographs of a folder; None: the drawn images."""
    if photos is None:
        return "120 drawn images"
    files = [path for path, _ in list_images(photos)[1]]
    size = sum(path.stat().st_size for path in files) / len(files)
    return f"{len(files)} photographs of {photos.name}, mean {size / 1e3:.0f} kB"


if __name__ == "__main__":
    sys.exit(main())
