"""ImageRecordIter of MXNet, of this project, and `AsyncDataLoader` with the same transforms, measured alternately.

    python -m benchmarks.image_record_iter --data FOLDER                  MXNet in a separate environment
    python -m benchmarks.image_record_iter --side mxnet --rec FILE.rec    one side, under this interpreter

An epoch of 224 x 224: random resized crop, mirror, mean and standard deviation, float32 (n, 3, 224, 224). Each
measurement runs in a fresh process; sides take turns. The same lines run MXNet's and this project's iterator; only the
import differs. Both get the index file and as many threads as there are cores.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

SIDES = ("mxnet", "ImageRecordIter", "AsyncDataLoader")
BATCH = 64
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)
MEAN = (0.485 * 255, 0.456 * 255, 0.406 * 255)
STD = (0.229 * 255, 0.224 * 255, 0.225 * 255)


class Meter:
    """Counter of images per second: counts batches after the first one until its time is over."""

    def __init__(self, seconds: float) -> None:
        self._seconds = seconds
        self._count = -2 * BATCH
        self._begin = 0.0

    def seen(self, images: Any) -> bool:
        """Count a batch; return whether time is left for another."""
        assert tuple(images.shape) == (BATCH, 3, 224, 224), images.shape
        self._count += BATCH
        if self._count <= 0:
            self._begin = time.perf_counter()
        return self._count <= 0 or time.perf_counter() - self._begin < self._seconds

    def rate(self) -> float:
        """Return images per second so far."""
        return self._count / (time.perf_counter() - self._begin)


def record_iter_rate(mx: Any, rec: str, cores: int, seconds: float) -> float:
    """Return images per second of an iterator that is reset at the end of each epoch."""
    options: dict[str, Any] = {}
    for name, mean, std in zip("rgb", MEAN, STD):  # noqa: B905 - older Pythons
        options.update({"mean_" + name: mean, "std_" + name: std})
    batches = mx.io.ImageRecordIter(
        path_imgrec=rec,
        path_imgidx=os.path.splitext(rec)[0] + ".idx",
        data_shape=(3, 224, 224),
        batch_size=BATCH,
        shuffle=True,
        random_resized_crop=True,
        min_random_area=AREA[0],
        max_random_area=AREA[1],
        min_aspect_ratio=RATIO[0],
        max_aspect_ratio=RATIO[1],
        rand_mirror=True,
        preprocess_threads=cores,
        prefetch_buffer=4,
        inter_method=1,
        **options,
    )
    meter = Meter(seconds)
    while True:
        for batch in batches:
            images = batch.data[0]
            images.wait_to_read()
            if not meter.seen(images):
                return meter.rate()
        batches.reset()


async def loader_rate(rec: str, cores: int, seconds: float) -> float:
    """Return images per second of the loader with equivalent transforms."""
    import aioloader
    from aioloader import transforms

    augment = transforms.Compose(
        [
            transforms.RandomResizedCrop(224, scale=AREA, ratio=RATIO, antialias=False),
            transforms.RandomHorizontalFlip(),
            transforms.ToTensor(),
            transforms.Normalize([value / 255 for value in MEAN], [value / 255 for value in STD]),
        ]
    )
    dataset = aioloader.ImageRecordDataset(rec).transform_first(augment)
    meter = Meter(seconds)
    async with aioloader.AsyncDataLoader[Any](
        dataset, BATCH, shuffle=True, num_workers=cores, last_batch="rollover"
    ) as loader:
        while True:
            async for images, _ in loader:
                if not meter.seen(images):
                    return meter.rate()


def measure(side: str, python: str, rec: str, cores: int, seconds: float) -> float:
    """Return the rate of one side, measured in a separate process with its interpreter."""
    command = [python, "-m", "benchmarks.image_record_iter", "--side", side, "--rec", rec]
    command += ["--cores", str(cores), "--seconds", str(seconds)]
    here = os.path.dirname(os.path.dirname(os.path.abspath(__file__)))
    done = subprocess.run(command, cwd=here, stdout=subprocess.PIPE, check=True, timeout=600)
    return float(done.stdout.split()[-1])


def compare(options: argparse.Namespace) -> None:
    """Measure all sides alternately and print the results."""
    from benchmarks.data import load_jpegs
    from benchmarks.main_job import write_rec

    sides = [side for side in SIDES if side != "mxnet" or not options.smoke]
    pythons = dict.fromkeys(sides, sys.executable)
    if "mxnet" in sides:
        from benchmarks.environments import default_folder, ensure

        pythons["mxnet"] = str(ensure("mxnet", default_folder()))
    found: dict[str, list[float]] = {side: [] for side in sides}
    with tempfile.TemporaryDirectory() as scratch:
        rec = Path(scratch, "images.rec")
        write_rec(rec, load_jpegs(options.data, scratch), 2 if options.smoke else 24)
        for number in range(options.rounds):
            for side in sides if number % 2 else reversed(sides):
                found[side].append(measure(side, pythons[side], str(rec), options.cores, options.seconds))
    from benchmarks.figures import spread, write_figures

    for side in sides:
        print(f"{side:16} {statistics.median(found[side]):8,.0f} images/s")
    ours = found["ImageRecordIter"]
    rows: list[dict[str, Any]] = [{"side": "ImageRecordIter", "images/s": spread(ours)}]
    for side in sides:
        if side != "ImageRecordIter":
            ratios = [mine / other for mine, other in zip(ours, found[side], strict=True)]
            print(
                f"ImageRecordIter to {side}: {statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
            )
            rows.append({"side": side, "images/s": spread(found[side]), "ours, times it": spread(ratios)})
    write_figures(options.json, rows)


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--side", choices=SIDES, help="measure this side under this interpreter; default: compare all"
    )
    parser.add_argument("--rec", help="with --side: a record file with its index next to it")
    parser.add_argument(
        "--data",
        metavar="FOLDER",
        default=os.environ.get("AIOLOADER_BENCH_DATA"),
        help="folder of JPEG files; default: AIOLOADER_BENCH_DATA, else 120 drawn images",
    )
    parser.add_argument("--cores", type=int, default=2)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=4.0)
    parser.add_argument(
        "--smoke", action="store_true", help="one short round without MXNet: a check that it runs"
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures to this file too")
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.seconds = 1, 0.3
    if options.side is None:
        compare(options)
    elif options.side == "AsyncDataLoader":
        print(asyncio.run(loader_rate(options.rec, options.cores, options.seconds)))
    else:
        if options.side == "mxnet":
            import mxnet as mx
        else:
            import aioloader.mxnet as mx
        print(record_iter_rate(mx, options.rec, options.cores, options.seconds))


if __name__ == "__main__":
    main()
