"""Packing against a bare loop that does the same work with OpenCV, or only with reads and writes.

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

import multiprocessing
import os
import shutil
import tempfile
from functools import partial
from pathlib import Path
from statistics import median
from typing import TYPE_CHECKING, Any

import cv2

from aioloader.foundation.host_limits import available_cores
from aioloader.tools.draw import draw_folder
from aioloader.tools.pack import list_images, pack
from benchmarks.figures import ratios
from benchmarks.measurement import in_turns, run, seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from benchmarks.figures import Row

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


def encoded(path: Path) -> bytes:
    """Return an image as the loop of `--resize` writes it."""
    image = cv2.imread(str(path))
    assert image is not None, path
    height, width = image.shape[:2]
    side = min(height, width)
    if side <= SIDE:
        return path.read_bytes()
    small = cv2.resize(image, (width * SIDE // side, height * SIDE // side), interpolation=cv2.INTER_AREA)
    return cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, QUALITY])[1].tobytes()


def write_all(content: Callable[[Path], bytes], job: tuple[list[Path], Path]) -> None:
    """Write header and content of some files to one file."""
    cv2.setNumThreads(1)
    paths, out = job
    with open(out, "wb") as file:
        for path in paths:
            data = content(path)
            file.write(_HEADER)
            file.write(data)
        file.flush()
        os.fsync(file.fileno())


def seconds(job: Callable[[Path], object], scratch: Path) -> float:
    """Return the seconds of a job, which writes into an empty folder."""
    shutil.rmtree(scratch, ignore_errors=True)
    scratch.mkdir()
    os.sync()
    return seconds_of(lambda: job(scratch))


def measure(
    data: Path | None = None,
    images: int = 3000,
    rounds: int = 7,
    workers: int = available_cores(),
    executor: str | None = None,
) -> Iterator[Row]:
    """Measure the jobs and their loops in turns.

    Args:
        data: folder.
        images: of each job.
        rounds: turns of each.
        workers: processes of the loop of `--resize`, and with `executor` those of packing.
        executor: "thread", "process" or "inline"; default: pack's choice.
    """
    given = {"executor": executor, "num_workers": workers if executor else None}
    with (
        tempfile.TemporaryDirectory() as folder,
        multiprocessing.get_context("spawn").Pool(workers) as processes,
    ):
        scratch, source = Path(folder, "out"), Path(folder, "in")
        photos = data or draw_folder(Path(folder, "drawn"), count=24, classes=4, seed=1)
        paths = link_images(Path(photos), source, images)

        def packed(out: Path, **options: Any) -> None:
            pack(source, out / "packed", **options, **given)

        def resized(out: Path) -> None:
            jobs = [(paths[number::workers], out / f"loop-{number}") for number in range(workers)]
            processes.map(partial(write_all, encoded), jobs, chunksize=1)

        def copied(out: Path) -> None:
            write_all(Path.read_bytes, (paths, out / "loop"))

        resize = {"resize": SIDE, "quality": QUALITY}
        for name, options, loop in (
            (f"--resize {SIDE} --quality {QUALITY}", resize, resized),
            ("--pass-through", {"pass_through": True}, copied),
        ):
            ways = {"pack": partial(packed, **options), "loop": loop}
            found = in_turns({way: partial(seconds, job, scratch) for way, job in ways.items()}, rounds)
            share = ratios(found["loop"], found["pack"])
            yield {"job": name, "of the bare loop": share, "images/s": images / median(found["pack"])}
        nbytes: dict[bool, int] = {}

        def optimizing(optimize: bool) -> float:
            took = seconds(partial(packed, optimize=optimize, **resize), scratch)
            nbytes[optimize] = (scratch / "packed.rec").stat().st_size
            return took

        found = in_turns({str(way): partial(optimizing, way) for way in (True, False)}, rounds)
        yield {
            "option": f"--optimize, with --resize {SIDE} --quality {QUALITY}",
            "bytes, of those without": nbytes[True] / nbytes[False],
            "time, of that without": ratios(found["True"], found["False"]),
        }


if __name__ == "__main__":
    run(measure, images=24, rounds=1)
