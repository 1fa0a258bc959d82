"""Run of every benchmark whose figures README and docs/ print, and the pages that it writes.

    python -m benchmarks.publish --list                      the parts, their commands and estimates
    python -m benchmarks.publish --data FOLDER               all parts that were not measured today yet
    python -m benchmarks.publish --data FOLDER --parts fill packing
    python -m benchmarks.publish --pages                     measure nothing, write the pages from the newest file

Each part is one command of `benchmarks.published_parts`. Its figures go to ``benchmarks/results/DATE.json``, next to
the machine, the versions and the command, as soon as it ends: an interrupted run is continued by the same command. A
part that fails is named at the end, and its figures stay as they are. Then docs/benchmarks-tables.md, the plots and
the marked parts of the pages are written from the file. Figures in sentences are revised by hand.
"""

from __future__ import annotations

import datetime
import json
import os
import shlex
import shutil
import subprocess
import sys
import tempfile
import time
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.__main__ import describe_data, describe_machine
from benchmarks.log import read_log
from benchmarks.measurement import parser_of
from benchmarks.published_pages import ROOT, write_pages
from benchmarks.published_parts import PARTS, PHOTOGRAPHS
from benchmarks.published_results import FOLDER, Published, compact, latest, revision, versions
from benchmarks.results import summarise

if TYPE_CHECKING:
    from collections.abc import Sequence

    from benchmarks.published_parts import Part

_USER = os.getuid() if hasattr(os, "getuid") else 0


@dataclass
class Options:
    """Options of the command line.

    Attributes:
        data: folder of photographs (JPEG)
        parts: only these parts
        again: measure parts again that were measured on that date
        list_: print the parts and their estimates
        pages: measure nothing, write the pages
        torch: an interpreter with torch for the remote records
        settings: take the best settings of the loaders from the newest results file, which saves half of the time
        date: of the results file; default: today
        results: folder of results files; default: benchmarks/results
        scratch: folder of the parts' output; kept for the day, so that an interrupted run of the loaders is continued
        pages_root: folder of README.md and docs/; default: this checkout
        smoke: drawn images, shortest runs: a check that it works; writes to --scratch and to --pages-root only
    """

    data: Path | None = None
    parts: Sequence[str] = ()
    again: bool = False
    list_: bool = False
    pages: bool = False
    torch: Path = Path(sys.executable)
    settings: bool = False
    date: str = datetime.date.today().isoformat()
    results: Path | None = None
    scratch: Path = Path(tempfile.gettempdir(), f"aioloader-publish-{_USER}")
    pages_root: Path | None = None
    smoke: bool = False


def run_part(part: Part, options: Options, scratch: Path) -> dict[str, Any]:
    """Run a part and return its record.

    Raises:
        ValueError: the command failed, or wrote no figures.
    """
    out = scratch / part.name
    if options.again:
        shutil.rmtree(out, ignore_errors=True)
    begin, measured = time.monotonic(), revision()
    status = call(_words(part, options, out))
    if status:
        raise ValueError(f"{part.name} ended with status {status}")
    record = {
        "command": part.command,
        "date": options.date,
        # Of the code when it began; it may have been edited since.
        "revision": measured,
        "seconds": round(time.monotonic() - begin, 1),
    }
    if part.is_run:
        found: dict[str, Any] = compact(summarise(read_log(out / "log.jsonl")))
    else:
        found = {"rows": json.loads(out.with_suffix(".json").read_text(encoding="utf-8"))}
    if not found["rows"]:
        raise ValueError(f"{part.name} wrote no figures")
    return {**record, **found}


def call(command: list[str]) -> int:
    """Run a command in the checkout; return its status."""
    return subprocess.run(command, cwd=ROOT, check=False).returncode


def _words(part: Part, options: Options, out: Path) -> list[str]:
    """Return the command of a part."""
    names = {"data": str(options.data), "torch": str(options.torch)}
    words = [word.format(**names) for word in shlex.split(part.words)]
    if options.smoke:
        # Drawn images, and the fewest rounds.
        words = [words[0], *shlex.split(part.smoke)]
    command = [sys.executable, "-m", *words]
    if not part.is_run:
        return [*command, "--json", str(out.with_suffix(".json"))]
    command += ["--out", str(out)]
    if (out / "log.jsonl").exists():
        command.append("--resume")
    if options.settings and part.name in ("loaders", PHOTOGRAPHS) and not options.smoke:
        command += ["--settings", str(latest())]
    return command


def _run(options: Options, published: Published) -> list[str]:
    """Run the parts that are missing, and return what failed."""
    wanted = [PARTS[name] for name in options.parts or PARTS]
    measured = {name for name, part in published.parts.items() if part["date"] == options.date}
    missing = [part for part in wanted if options.again or part.name not in measured]
    print(
        f"{len(missing)} of {len(wanted)} parts, {sum(part.minutes for part in missing):.0f} minutes",
        flush=True,
    )
    failed = []
    options.scratch.mkdir(parents=True, exist_ok=True)
    for number, part in enumerate(missing, 1):
        print(
            f"\n[{number}/{len(missing)}] {part.name}, {part.minutes:g} minutes: {part.command}", flush=True
        )
        try:
            published.add(part.name, run_part(part, options, options.scratch))
        except (ValueError, OSError) as error:
            print(f"publish: {error}", file=sys.stderr)
            failed.append(part.name)
    return failed


def _list(published: Published | None) -> None:
    for part in PARTS.values():
        done = published is not None and part.name in published.parts
        print(f"{part.name:18} {'done' if done else f'{part.minutes:g} min':>8}  {part.command}")
    print(f"{'together':18} {sum(part.minutes for part in PARTS.values()):g} min")


def main(argv: Sequence[str] | None = None) -> int:
    """Run from the command line.

    Returns:
        the exit code: 0, or 1 if a part failed.
    """
    options = Options(**vars(parser_of(Options).parse_args(argv)))
    unknown = set(options.parts or ()) - set(PARTS)
    if unknown:
        print(
            f"publish: error: unknown part {min(unknown)!r}; choose from: {', '.join(PARTS)}", file=sys.stderr
        )
        return 2
    options.scratch = options.scratch / options.date
    if options.results is None:
        options.results = options.scratch / "results" if options.smoke else FOLDER
    write_to = options.pages_root or (None if options.smoke else ROOT)
    path = options.results / f"{options.date}.json"
    if options.list_:
        _list(Published(path))
        return 0
    failed = []
    if options.pages:
        newest = latest(options.results)
        published = None if newest is None else Published(newest)
    else:
        if options.data is None and not options.smoke:
            print("publish: error: --data FOLDER is missing: a folder of photographs", file=sys.stderr)
            return 2
        facts = {
            "date": options.date,
            "machine": describe_machine(),
            "cores": sorted(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else [],
            "data": describe_data(None if options.smoke else options.data),
            "versions": versions(),
        }
        published = Published(path, facts)
        changed_facts = [
            name for name in ("machine", "data", "versions") if published.facts[name] != facts[name]
        ]
        if changed_facts:
            print(
                f"publish: error: {path} has another {' and '.join(changed_facts)}; delete it, or pass another --date",
                file=sys.stderr,
            )
            return 2
        failed = _run(options, published)
        print(f"\n{path}")
    if write_to is not None:
        known = (published.facts, published.parts) if published else ({}, {})
        for changed in write_pages(*known, write_to):
            print(changed)
    if failed:
        print(f"failed: {', '.join(failed)}", file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
