"""Packing against a bare loop that does the same work with OpenCV, or only with reads and writes.

    python -m benchmarks.packing --data FOLDER
    python -m benchmarks.packing --data FOLDER --rounds 9 --images 3000

Two jobs, each alternating with its loop, on the same files in the page cache; the figures are medians of the rounds and
of their ratios. Files are linked often enough to make `--images`.

- ``--resize 256 --quality 95``: the loop is `cv2.imread`, `cv2.resize` (INTER_AREA, shorter side 256, only where it is
  longer), `cv2.imencode` at quality 95 with OpenCV's other settings, which are those of packing too, and a write of
  header and bytes to a file; images that are small enough are read and written unchanged, as packing does. One
  process for each core, each with every n-th image and its own file, OpenCV's threads off.
- ``--pass-through``: the loop is read and write of each file in one process.

``--optimize`` is measured against packing without it, both with the options of the first job.

Both sides end with an fsync of what they wrote. Importing is not part of the time.
"""

from __future__ import annotations

import argparse
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import cv2

from aioloader.foundation.host_limits import available_cores
from aioloader.tools.draw import draw_folder
from aioloader.tools.pack import list_images, pack
from benchmarks.figures import Row, add_json_option, ratios, spread, write_figures

if TYPE_CHECKING:
    from collections.abc import Callable

SIDE, QUALITY = 256, 95
_HEADER = bytes(32)


def link_images(source: Path, folder: Path, count: int) -> list[Path]:
    """Make a folder of `count` links to the images of another one, in separate classes."""
    found = [path.resolve() for path, _ in list_images(source)[1]]
    for number in range(count):
        path = found[number % len(found)]
        place = folder / f"c{number // len(found):04}" / f"{number:07}{path.suffix}"
        place.parent.mkdir(parents=True, exist_ok=True)
        place.symlink_to(path)
    return [path for path, _ in list_images(folder)[1]]


def encode_files(paths: list[Path], out: Path) -> None:
    """Run the loop of `--resize` for some files."""
    cv2.setNumThreads(1)
    with open(out, "wb") as file:
        for path in paths:
            image = cv2.imread(str(path))
            assert image is not None, path
            height, width = image.shape[:2]
            side = min(height, width)
            if side > SIDE:
                size = (width * SIDE // side, height * SIDE // side)
                small = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
                data = cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes()
            else:
                data = path.read_bytes()
            file.write(_HEADER)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())


class EncodeLoop:
    """Pool of processes that run `encode_files`; they start before the time is measured."""

    def __init__(self, source: Path, processes: int) -> None:
        command = [sys.executable, "-m", "benchmarks.packing", "--data", str(source), "--child"]
        self._children = [
            subprocess.Popen(
                [*command, f"{number}/{processes}"], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
            )
            for number in range(processes)
        ]
        for child in self._children:
            assert child.stdout is not None
            assert child.stdout.readline() == "ready\n"

    def __call__(self, out: Path) -> None:
        """Encode all images once."""
        for child in self._children:
            assert child.stdin is not None
            child.stdin.write(f"{out}\n")
            child.stdin.flush()
        for child in self._children:
            assert child.stdout is not None
            assert child.stdout.readline() == "done\n"

    def close(self) -> None:
        """End the processes."""
        for child in self._children:
            child.communicate()


def serve_loop(source: Path, part: str) -> None:
    """Run one process of `EncodeLoop`."""
    number, processes = map(int, part.split("/"))
    paths = [path for path, _ in list_images(source)[1]][number::processes]
    print("ready", flush=True)
    for line in sys.stdin:
        encode_files(paths, Path(line.rstrip("\n")) / f"loop-{number}")
        print("done", flush=True)


def copy_loop(paths: list[Path], out: Path) -> None:
    """Run the loop of `--pass-through`."""
    with open(out / "loop", "wb") as file:
        for path in paths:
            with open(path, "rb") as source:
                data = source.read()
            file.write(_HEADER)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())


def seconds(job: Callable[[Path], object], scratch: Path) -> float:
    """Return the seconds of a job, which writes into an empty folder."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    os.sync()
    begin = time.perf_counter()
    job(scratch)
    return time.perf_counter() - begin


def compare(
    name: str,
    ours: Callable[[Path], object],
    loop: Callable[[Path], object],
    images: int,
    rounds: int,
    scratch: Path,
) -> Row:
    """Measure alternately and print; return the figures."""
    times: dict[bool, list[float]] = {True: [], False: []}
    for number in range(rounds + 1):
        for is_ours in (True, False) if number % 2 else (False, True):
            took = seconds(ours if is_ours else loop, scratch)
            if number:  # the first round warms up
                times[is_ours].append(took)
    found = sorted(bare / packed for packed, bare in zip(times[True], times[False], strict=True))
    ratio = statistics.median(found)
    print(
        f"{name:34} pack {images / statistics.median(times[True]):8,.0f} images/s   loop "
        f"{images / statistics.median(times[False]):8,.0f} images/s   ratio {ratio:.2f} "
        f"({found[0]:.2f} to {found[-1]:.2f})",
        flush=True,
    )
    return {
        "job": name,
        "of the bare loop": spread(found),
        "images/s": images / statistics.median(times[True]),
    }


def optimising(source: Path, given: dict[str, Any], rounds: int, scratch: Path) -> Row:
    """Measure packing with and without `--optimize` alternately and print; return the figures."""
    times: dict[bool, list[float]] = {True: [], False: []}
    nbytes = {}
    for number in range(rounds + 1):
        for optimize in (True, False) if number % 2 else (False, True):

            def job(out: Path, optimize: bool = optimize) -> None:
                pack(source, out / "packed", resize=SIDE, quality=QUALITY, optimize=optimize, **given)

            took = seconds(job, scratch)
            if number:  # the first round warms up
                times[optimize].append(took)
            nbytes[optimize] = (scratch / "packed.rec").stat().st_size
    row: Row = {
        "option": f"--optimize, with --resize {SIDE} --quality {QUALITY}",
        "bytes, of those without": nbytes[True] / nbytes[False],
        "time, of that without": ratios(times[True], times[False]),
    }
    print(*(f"{column}: {value}" for column, value in row.items()), sep="   ")
    return row


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--data", type=Path, help="folder of images, one sub-folder per class; default: drawn images"
    )
    parser.add_argument("--images", type=int, default=3000)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--workers", type=int, default=available_cores())
    parser.add_argument("--executor", choices=("thread", "process", "inline"), help="default: pack's choice")
    parser.add_argument("--only", choices=("resize", "pass-through"))
    parser.add_argument("--smoke", action="store_true", help="few images: a check that it runs")
    parser.add_argument("--child", help=argparse.SUPPRESS)
    add_json_option(parser)
    options = parser.parse_args()
    if options.child:
        serve_loop(options.data, options.child)
        return
    if options.smoke:
        options.images, options.rounds = 24, 1
    count, workers = options.images, options.workers
    with tempfile.TemporaryDirectory() as folder:
        scratch = Path(folder) / "out"
        if options.data is None:
            options.data = Path(folder) / "drawn"
            draw_folder(options.data, count=24, classes=4, seed=1)
        source = Path(folder) / "in"
        paths = link_images(options.data, source, count)
        given = {"executor": options.executor, "num_workers": workers if options.executor else None}
        print(f"{count:,} images, {options.rounds} rounds, {workers} cores", flush=True)
        rows = []
        if options.only != "pass-through":
            loop = EncodeLoop(source, workers)
            made = compare(
                f"--resize {SIDE} --quality {QUALITY}",
                lambda out: pack(source, out / "packed", resize=SIDE, quality=QUALITY, **given),
                loop,
                images=count,
                rounds=options.rounds,
                scratch=scratch,
            )
            rows.append(made)
            loop.close()
        if options.only != "resize":
            made = compare(
                "--pass-through",
                lambda out: pack(source, out / "packed", pass_through=True, **given),
                lambda out: copy_loop(paths, out),
                images=count,
                rounds=options.rounds,
                scratch=scratch,
            )
            rows.append(made)
        if options.only is None:
            rows.append(optimising(source, given, options.rounds, scratch))
        write_figures(options.json, rows)


if __name__ == "__main__":
    main()
