"""Modules that one index passes, from the sampler to the batch, with the process executor.

    python -m benchmarks.path_modules [ROOT] [-v]

A shuffled ImageRecordDataset with RandomResizedCrop, flip and ToTensor is read by AsyncDataLoader with two workers. For
BATCHES batches in the middle of an epoch, sys.setprofile and threading.setprofile count the calls of Python functions
by module, in every thread of the parent and of the workers, where a sitecustomize module installs them. A module is on
the path if its functions are called once a batch (0.75, for batches in flight at both ends), by the parent or by the
workers together. ROOT is another checkout; ``-v`` lists the functions too.

The last lines are about the parent: the calls of a batch, with and without those of anyio and the standard library, and
the moves: how often the module of a call is another one than that of the call before it.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

from benchmarks.process import ROOT

BATCH, SKIP, BATCHES = 8, 12, 24

# Runs in the parent and, as sitecustomize, in each worker.
PROFILER = """
import os
if os.environ.get("PATH_MODULES"):
    import json, mmap, sys, threading
    _folder = os.environ["PATH_MODULES"]
    _fd = os.open(_folder + "/flag", os.O_RDWR)
    _flag = mmap.mmap(_fd, 1)
    os.close(_fd)
    _counts = {}
    _functions = {}
    _totals = {"calls": 0, "own": 0, "moves": 0}
    _latest = [""]
    _done = []

    def _dump():
        _done.append(1)
        path = f"{_folder}/{os.getpid()}.json"
        with open(path + ".part", "w") as file:
            functions = {name: dict(counts) for name, counts in dict(_functions).items()}
            json.dump({"counts": dict(_counts), "functions": functions, "totals": _totals}, file)
        os.rename(path + ".part", path)

    def _profile(frame, event, arg):
        if event != "call":
            return
        state = _flag[0]
        if state == 1:
            _totals["calls"] += 1
            name = frame.f_globals.get("__name__", "")
            if name.startswith(("aioloader", "recordio", "namedtuple_")):
                _totals["own"] += 1
                _totals["moves"] += name != _latest[0]
                _latest[0] = name
                _counts[name] = _counts.get(name, 0) + 1
                mine = _functions.setdefault(name, {})
                code = frame.f_code.co_qualname
                mine[code] = mine.get(code, 0) + 1
        elif state == 2 and not _done:
            _dump()

    threading.setprofile(_profile)
    sys.setprofile(_profile)
"""

PARENT = """
import json, os, sys, time
import anyio
import aioloader
from aioloader import transforms

folder, rec, root, batch, skip, batches = sys.argv[1:]
batch, skip, batches = int(batch), int(skip), int(batches)
assert aioloader.__file__.startswith(root), aioloader.__file__
import sitecustomize


async def main():
    steps = [transforms.RandomResizedCrop(64), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    chain = transforms.Compose(steps)
    dataset = aioloader.ImageRecordDataset(rec).transform_first(chain)
    async with aioloader.AsyncDataLoader(dataset, batch, shuffle=True, num_workers=2, executor="process") as loader:
        count = 0
        async for images, labels in loader:
            count += 1
            if count == skip:
                sitecustomize._flag[0] = 1
            elif count == skip + batches:
                sitecustomize._flag[0] = 0
        assert count > skip + batches + 4, count
        sitecustomize._flag[0] = 2
        for _ in range(3):
            async for images, labels in loader:
                pass
        await anyio.sleep(1.2)
        (lambda: None)()

anyio.run(main)
"""


def write_rec(path: Path, root: Path) -> None:
    """Write a record file with drawn JPEGs."""
    code = """
import sys
import cv2, numpy as np, recordio
rng = np.random.default_rng(0)
with recordio.RecordWriter(sys.argv[1], index=True) as writer:
    for key in range(int(sys.argv[2])):
        image = cv2.resize(rng.integers(0, 255, (12, 16, 3), dtype=np.uint8), (320, 240), interpolation=cv2.INTER_CUBIC)
        jpeg = cv2.imencode(".jpg", image)[1].tobytes()
        writer.write(recordio.pack(recordio.IRHeader(0, float(key % 10), key, 0), jpeg), key)
"""
    images = BATCH * (SKIP + BATCHES + 12)
    subprocess.run(
        [sys.executable, "-c", code, str(path), str(images)],
        check=True,
        env={**os.environ, "PYTHONPATH": str(root)},
    )


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("root", nargs="?", default=ROOT, type=Path, help="a checkout; default: this one")
    parser.add_argument("-v", "--verbose", action="store_true", help="list the functions too")
    options = parser.parse_args()
    root = options.root.resolve()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_rec(folder / "path.rec", root)
        (folder / "flag").write_bytes(b"\0")
        (folder / "sitecustomize.py").write_text(PROFILER)
        (folder / "parent.py").write_text(PARENT)
        env = {
            **os.environ,
            "PYTHONPATH": f"{scratch}:{root}",
            "PATH_MODULES": scratch,
            "PYTHONDONTWRITEBYTECODE": "1",
        }
        done = subprocess.Popen(
            [
                sys.executable,
                str(folder / "parent.py"),
                scratch,
                str(folder / "path.rec"),
                str(root),
                str(BATCH),
                str(SKIP),
                str(BATCHES),
            ],
            env=env,
            cwd=scratch,
        )
        if done.wait():
            sys.exit("the run failed")
        found = {int(p.stem): json.loads(p.read_text()) for p in folder.glob("*.json")}
    sides: dict[str, dict[str, int]] = {"parent": {}, "workers": {}}
    functions: dict[str, set[str]] = {}
    workers = 0
    for pid, entry in found.items():
        side = "parent" if pid == done.pid else "workers"
        workers += side == "workers"
        for name, count in entry["counts"].items():
            sides[side][name] = sides[side].get(name, 0) + count
            functions.setdefault(name, set()).update(entry["functions"][name])
    assert sides["parent"], found.keys()
    assert workers >= 2, found.keys()
    on_path = {
        side: sorted(n for n, c in counts.items() if c >= 0.75 * BATCHES) for side, counts in sides.items()
    }
    both = sorted({n for names in on_path.values() for n in names if not n.startswith("namedtuple_")})
    print(f"{root}: {BATCHES} batches of {BATCH}, {workers} workers")
    print(f"{'module':50} {'parent':>8} {'workers':>8}   calls a batch")
    for name in both:
        row = [sides[s].get(name, 0) / BATCHES for s in sides]
        print(f"{name:50} {row[0]:8.2f} {row[1]:8.2f}", *(sorted(functions[name]) if options.verbose else ()))
    rare = sorted({n for c in sides.values() for n in c} - set(both))
    print(
        "\nless than once a batch: "
        + " ".join(f"{n} ({max(c.get(n, 0) for c in sides.values())})" for n in rare)
    )
    parent, worker = ({n for n in on_path[s] if n in both} for s in ("parent", "workers"))
    counts = f"{len(parent)} in the parent, {len(worker)} in the workers, {len(parent & worker)} in both"
    print(f"\nmodules on the path: {len(both)} ({counts})")
    calls, own, moves = (found[done.pid]["totals"][name] / BATCHES for name in ("calls", "own", "moves"))
    chunks = found[done.pid]["functions"]["aioloader.pipeline.batch_task"]["BatchTask._chunk"] / BATCHES
    print(
        f"a batch of {chunks:.1f} chunks in the parent: {calls:.0f} calls, {own:.0f} of this package, {moves:.0f} "
        "moves between modules"
    )


if __name__ == "__main__":
    main()
