"""Two revisions of this project, measured alternately, so that a change that slows a hot path is seen.

    python -m benchmarks.before_after HEAD~1 HEAD --data FOLDER --rounds 9

Each revision is exported from git and installed in a separate environment, with the same versions of all
dependencies, and runs its own benchmarks. Each measurement runs in a fresh process. The revisions take turns, and the
one that begins changes from round to round. Compare the ratios: absolute speed depends on the machine. Where other
programs run, compare those of the second table, of samples per CPU second of the process and its workers.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from functools import partial
from operator import methodcaller
from pathlib import Path
from statistics import geometric_mean, median
from typing import TYPE_CHECKING, Any, NamedTuple

from aioloader.foundation.host_limits import available_cores
from aioloader.tools.bench import cpu_seconds
from benchmarks.figures import ratios
from benchmarks.measurement import in_turns
from benchmarks.process import ROOT

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

SIDES = ("before", "after")
LIMIT = 0.97
"""Lowest median ratio of the rates, after divided by before, that does not count as a regression."""

# (case, variant, setting) of the contender aioloader; WORKERS is replaced by the number of cores.
WORKERS = -1
CASES: dict[str, tuple[str, str, dict[str, Any]]] = {
    "faces process": ("faces", "process", {"executor": "process", "num_workers": WORKERS}),
    "faces thread": ("faces", "thread", {"executor": "thread", "num_workers": WORKERS}),
    "raw process": ("raw", "process", {"executor": "process", "num_workers": WORKERS}),
    "bytes process": ("bytes", "process", {"executor": "process", "num_workers": WORKERS}),
    "bytes inline": ("bytes", "inline", {"executor": "inline", "num_workers": 0}),
    "bytes blocking": ("bytes", "blocking", {"executor": "inline", "num_workers": 0}),
    "arrays inline": ("arrays", "inline", {}),
    "arrays blocking": ("arrays", "blocking", {}),
    "arrays gluon": ("arrays", "gluon", {"num_workers": 0}),
    "arrays gluon, workers": ("arrays", "gluon", {"num_workers": WORKERS}),
    "float32 process": ("jpeg-float32", "process", {"executor": "process", "num_workers": WORKERS}),
}

# A revision runs these with its own code. This one makes the data of the cases, and the file of RECORD_ITER.
PREPARE = """
import json, sys
from dataclasses import asdict
from pathlib import Path
from benchmarks.cases import chosen
from benchmarks.contenders import aioloader as contender
from benchmarks.main_job import write_rec
from benchmarks.prepare import make_source, warm_up

photos, scratch, names = json.loads(sys.argv[1])
scratch = Path(scratch)
found = {}
for case in chosen(names):
    source = make_source(case, Path(photos), scratch, lambda text: print(text, file=sys.stderr))
    folder = scratch / "prepared"
    folder.mkdir(exist_ok=True)
    data = contender.prepare(case, "process", source, folder)
    found[case.name] = {"case": asdict(case), "data": str(data)}
    warm_up(source.folder)
paths = [path for path in sorted(Path(photos).rglob("*")) if path.suffix.lower() in (".jpg", ".jpeg")]
write_rec(scratch / "images.rec", [path.read_bytes() for path in paths], 24)
print(json.dumps(found))
"""

RECORD_ITER = """
import json, sys, time
import aioloader.mxnet as mx

rec, cores, seconds = sys.argv[1], int(sys.argv[2]), float(sys.argv[3])
crop = {"random_resized_crop": True, "min_random_area": 0.08, "min_aspect_ratio": 3 / 4, "max_aspect_ratio": 4 / 3}
tone = {f"{kind}_{name}": 110.0 for kind in ("mean", "std") for name in "rgb"}
batches = mx.io.ImageRecordIter(
    path_imgrec=rec, path_imgidx=rec[:-4] + ".idx", data_shape=(3, 224, 224), batch_size=64, shuffle=True,
    rand_mirror=True, inter_method=1, preprocess_threads=cores, prefetch_buffer=4, **crop, **tone,
)
count, begin = -128, 0.0
while True:
    for batch in batches:
        count += 64
        now = time.perf_counter()
        if not count:
            begin = now
            print(json.dumps({"event": "timed", "at": now}), flush=True)
        elif count > 0 and now - begin > seconds:
            print(json.dumps({"event": "result", "at": now, "images_per_s": count / (now - begin)}), flush=True)
            batches.close()
            sys.exit()
    batches.reset()
"""


class Rates(NamedTuple):
    """Samples per second, and per CPU second of all processes if that is measured."""

    wall: float
    cpu: float | None = None


class Side:
    """A revision, installed in its environment, and its data.

    Args:
        name: "before" or "after".
        revision: a revision that git understands.
        scratch: folder for everything that is made.
    """

    def __init__(self, name: str, revision: str, scratch: Path) -> None:
        self.name = name
        self._checkout, self._folder, self._data, self._environment = (
            scratch / f"{name}-{kind}" for kind in ("source", "benchmarks", "data", "environment")
        )
        self._prepared: dict[str, dict[str, Any]] = {}
        for folder in (self._checkout, self._folder, self._data):
            folder.mkdir()
        archive = subprocess.run(["git", "archive", revision], cwd=ROOT, check=True, stdout=subprocess.PIPE)
        subprocess.run(["tar", "-x"], cwd=self._checkout, input=archive.stdout, check=True)
        # Only the installed packages and the benchmarks can be imported from here.
        (self._folder / "benchmarks").symlink_to(self._checkout / "benchmarks")

    def install(self, constraints: Path | None = None) -> str:
        """Install the revision; return the versions of its dependencies, one requirement in each line.

        Args:
            constraints: versions that pip must choose.
        """
        subprocess.run([sys.executable, "-m", "venv", self._environment], check=True)
        pip = [str(self._environment / "bin" / "pip"), "--quiet", "--disable-pip-version-check"]
        chosen = [] if constraints is None else ["-c", str(constraints)]
        subprocess.run([*pip, "install", *chosen, f"{self._checkout}[turbojpeg,service]"], check=True)
        done = subprocess.run([*pip, "freeze"], check=True, stdout=subprocess.PIPE, text=True)
        return "\n".join(line for line in done.stdout.splitlines() if not line.startswith("aioloader"))

    def prepare(self, photos: str) -> None:
        """Make the data of all cases from a folder of JPEG files."""
        names = sorted({case for case, _, _ in CASES.values()})
        self._prepared = json.loads(
            self._run("-c", PREPARE, json.dumps([photos, str(self._data), names]))[-1]
        )

    def main_job(self, photos: str, seconds: float) -> Rates:
        """Measure one epoch of `benchmarks.main_job` that takes about `seconds`."""
        repeat = str(max(2, round(6 * seconds)))
        words = ("benchmarks.main_job", "--data", photos, "--repeat", repeat, "--seconds", "0.3")
        return self._rate("AsyncDataLoader", *words)

    def service(self, photos: str) -> Rates:
        """Measure `AsyncImageService.gather` in `benchmarks.image_service`."""
        return self._rate("gather", "benchmarks.image_service", "--data", photos, "--small")

    def image_record_iter(self, seconds: float) -> Rates:
        """Measure `aioloader.mxnet.io.ImageRecordIter`: float32 crops of 224."""
        rec = str(self._data / "images.rec")
        return self._timed("-c", RECORD_ITER, rec, str(available_cores()), str(seconds))

    def case(self, name: str, seconds: float) -> Rates:
        """Measure one of `CASES`."""
        case, variant, setting = CASES[name]
        cores = available_cores()
        request = {
            "module": "benchmarks.contenders.aioloader",
            "name": "aioloader",
            "job": "measure",
            "cores": list(range(cores)),
            "events": 1,
            **self._prepared[case],
            "variant": variant,
            "setting": {key: cores if value == WORKERS else value for key, value in setting.items()},
            "times": {"warm": min(0.7, seconds), "timed": seconds, "lag": 0.0, "memory": 0.0},
            "batches": 16,
        }
        return self._timed("-m", "benchmarks.contenders.run", json.dumps(request))

    def _rate(self, row: str, module: str, *words: str) -> Rates:
        """Measure images per second of the row that begins with this text, of a benchmark's only round."""
        path = self._data / "rows.json"
        self._run("-m", module, *words, "--rounds", "1", "--json", str(path))
        rows = (list(each.values()) for each in json.loads(path.read_text()))
        return Rates(float(next(spread[0] for first, spread, *_ in rows if first == row)))

    def _timed(self, *arguments: str) -> Rates:
        """Measure a process that writes an event when its timed phase begins, when it ends, and for its result."""
        found: dict[str, Any] = {}
        marks = []
        with subprocess.Popen(**self._command(arguments)) as process:
            assert process.stdout is not None
            for line in filter(lambda line: line.startswith("{"), process.stdout):
                event = json.loads(line)
                if event["event"] == "timed" or len(marks) == 1:
                    marks.append((event["at"], cpu_seconds(process.pid) or 0.0))
                found = event
        if process.returncode:
            raise subprocess.CalledProcessError(process.returncode, process.args)
        (begin, before), (end, after) = marks
        rate = float(found["images_per_s"])
        return Rates(rate, rate * (end - begin) / (after - before))

    def _run(self, *arguments: str) -> list[str]:
        """Run this revision's interpreter; return the lines of its output."""
        done = subprocess.run(**self._command(arguments), check=True, timeout=1800)
        return done.stdout.splitlines()

    def _command(self, arguments: Sequence[str]) -> dict[str, Any]:
        kept = {k: v for k, v in os.environ.items() if not k.startswith(("PYTHON", "VIRTUAL_ENV"))}
        command = [str(self._environment / "bin" / "python"), *arguments]
        return {"args": command, "cwd": self._folder, "env": kept, "stdout": subprocess.PIPE, "text": True}


def measurements(photos: str, seconds: float) -> Mapping[str, Callable[[Side], Rates]]:
    """Return the measurements by name; each takes a side."""
    found: dict[str, Callable[[Side], Rates]] = {
        "main_job": methodcaller("main_job", photos, seconds),
        "service": methodcaller("service", photos),
        "ImageRecordIter": methodcaller("image_record_iter", seconds),
    }
    for name in CASES:
        found[name] = methodcaller("case", name, seconds)
    return found


def report(rates: Mapping[str, Mapping[str, list[Any]]], per: str = "s") -> str:
    """Return a table of the rates per second, and of their ratios, after divided by before, round by round."""
    heads = [f"{side}/{per}" for side in SIDES]
    lines = ["{:34} {:>12} {:>12}  after / before: median (min to max)".format("measurement", *heads)]
    middles = []
    for name, found in rates.items():
        middle, low, high = ratios(found["after"], found["before"])
        before, after = median(found["before"]), median(found["after"])
        mark = "" if middle >= LIMIT else f"  below {LIMIT}"
        text = f"{middle:.3f} ({low:.3f} to {high:.3f}); of the medians {after / before:.3f}{mark}"
        lines.append(f"{name:34} {before:12,.0f} {after:12,.0f}  {text}")
        middles.append(middle)
    if middles:
        lines.append(f"geometric mean {geometric_mean(middles):.3f}, lowest {min(middles):.3f}")
    return "\n".join(lines)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("revisions", nargs=2, metavar="REVISION", help="of this repository: before and after")
    parser.add_argument("--data", type=Path, required=True, metavar="FOLDER", help="of JPEG files")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--seconds", type=float, default=1.5, help="of each measurement")
    parser.add_argument("--only", nargs="*", default=[""], metavar="WORD", help="only those with such a name")
    options = parser.parse_args()
    photos = str(options.data.resolve())
    with tempfile.TemporaryDirectory() as name:
        scratch = Path(name)
        before, after = (Side(*pair, scratch) for pair in zip(SIDES, options.revisions, strict=True))
        constraints = scratch / "constraints.txt"
        constraints.write_text(before.install())
        after.install(constraints)
        for side in (before, after):
            side.prepare(photos)
        found = measurements(photos, options.seconds)
        chosen = {name: found[name] for name in found if any(word in name for word in options.only)}
        ways = {(name, side.name): partial(chosen[name], side) for name in chosen for side in (before, after)}
        rates = in_turns(ways, options.rounds, warm=0)
    for part, per in enumerate(("s", "CPU s")):
        table = {
            name: {side: [each[part] for each in rates[name, side]] for side in SIDES} for name in chosen
        }
        print(report({name: sides for name, sides in table.items() if None not in sides["after"]}, per))


if __name__ == "__main__":
    main()
