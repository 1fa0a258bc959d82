"""Modules that one index passes, from the sampler to the batch, with the process executor.

    python -m benchmarks.path_modules [ROOT]

A shuffled ImageRecordDataset with RandomResizedCrop, flip and ToTensor is read by AsyncDataLoader with two workers. For
BATCHES batches in the middle of an epoch, sys.setprofile and threading.setprofile count the calls of Python functions
by module, in every thread of the parent and of the workers, where a sitecustomize module installs them. A module is on
the path if its functions are called once a batch (0.75, for batches in flight at both ends), by the parent or by the
workers together. ROOT is another checkout.

The last line is about the parent: calls of this project's functions, of all functions, and moves, which are the calls
of this project whose module is another one than that of the call before.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections import Counter
from pathlib import Path

from benchmarks.data import load_jpegs, write_rec
from benchmarks.figures import plain_tables
from benchmarks.process import ROOT

BATCH, SKIP, BATCHES = 8, 12, 24

# Runs in the parent and, as sitecustomize, in each worker. The flag is 1 while calls count, and then 2.
PROFILER = """
import os
if "PATH_MODULES" in os.environ:
    import json, mmap, sys, threading
    _folder = os.environ["PATH_MODULES"]
    _fd = os.open(_folder + "/flag", os.O_RDWR)
    _flag = mmap.mmap(_fd, 1)
    os.close(_fd)
    _counts = {}
    _latest = ""

    def _profile(frame, event, arg):
        global _latest
        if event == "call" and _flag[0] == 1:
            name = frame.f_globals.get("__name__", "")
            _counts["all"] = _counts.get("all", 0) + 1
            if name.startswith(("aioloader", "recordio")):
                _counts[name] = _counts.get(name, 0) + 1
                _counts["moves"] = _counts.get("moves", 0) + (name != _latest)
                _latest = name
        elif _flag[0] == 2 and _counts:
            counts = dict(_counts)
            _counts.clear()
            with open(f"{_folder}/{os.getpid()}.json", "w") as file:
                json.dump(counts, file)

    threading.setprofile(_profile)
    sys.setprofile(_profile)
"""

PARENT = """
import sys
import anyio
import aioloader
import sitecustomize
from aioloader import transforms

rec, root, batch, skip, stop = sys.argv[1], sys.argv[2], *map(int, sys.argv[3:])
assert aioloader.__file__.startswith(root), aioloader.__file__


async def main():
    steps = [transforms.RandomResizedCrop(64), transforms.RandomHorizontalFlip(), transforms.ToTensor()]
    dataset = aioloader.ImageRecordDataset(rec).transform_first(transforms.Compose(steps))
    async with aioloader.AsyncDataLoader(dataset, batch, shuffle=True, num_workers=2, executor="process") as loader:
        count = 0
        async for _ in loader:
            count += 1
            sitecustomize._flag[0] = skip <= count < stop
        assert count > stop + 4, count
        sitecustomize._flag[0] = 2
        async for _ in loader:  # each process writes its counts at its next call
            pass
    (lambda: None)()

anyio.run(main)
"""


def main() -> None:
    """Run from the command line."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ROOT).resolve()
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        rec = folder / "path.rec"
        jpegs = load_jpegs(None)
        write_rec(rec, jpegs * -(-BATCH * (SKIP + BATCHES + 12) // len(jpegs)), 1)
        (folder / "flag").write_bytes(b"\0")
        (folder / "sitecustomize.py").write_text(PROFILER)
        numbers = map(str, (BATCH, SKIP, SKIP + BATCHES))
        command = [sys.executable, "-c", PARENT, str(rec), str(root), *numbers]
        env = {**os.environ, "PYTHONPATH": f"{scratch}:{root}", "PATH_MODULES": scratch}
        with subprocess.Popen(command, env=env, cwd=scratch) as parent:
            if parent.wait():
                sys.exit("the run failed")
        found = {path.stem: Counter(json.loads(path.read_text())) for path in folder.glob("*.json")}
    sides = {"parent": found.pop(str(parent.pid)), "workers": sum(found.values(), Counter())}
    every, moves = (sides["parent"][name] / BATCHES for name in ("all", "moves"))
    for counts in sides.values():
        del counts["all"], counts["moves"]
    least = 0.75 * BATCHES
    names = sorted({name for counts in sides.values() for name in counts if counts[name] >= least})
    rows = [{"module": n, **{side: counts[n] / BATCHES for side, counts in sides.items()}} for n in names]
    print(f"calls of functions in a batch of {BATCH}, {len(found)} workers\n")
    print("\n".join(plain_tables(rows)))
    on = {side: sum(counts[name] >= least for name in names) for side, counts in sides.items()}
    print(f"modules on the path: {len(names)} ({on['parent']} in the parent, {on['workers']} in the workers)")
    own = sum(sides["parent"].values()) / BATCHES
    print(f"the parent in a batch: {own:.0f} calls of this project, {every:.0f} of all, {moves:.0f} moves")


if __name__ == "__main__":
    main()
