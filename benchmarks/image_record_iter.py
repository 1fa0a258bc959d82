"""ImageRecordIter of MXNet, of this project, and `AsyncDataLoader` with the same transforms, measured alternately.

    python -m benchmarks.image_record_iter --data FOLDER                  MXNet in a separate environment
    python -m benchmarks.image_record_iter --side mxnet --rec FILE.rec    one side, under this interpreter

An epoch of 224 x 224: random resized crop, mirror, mean and standard deviation, float32 (n, 3, 224, 224). Each
measurement runs in a fresh process; sides take turns. The same lines run MXNet's and this project's iterator; only the
import differs. Both get the index file and as many threads as there are cores.
"""

from __future__ import annotations

import asyncio
import importlib
import os
import tempfile
import time
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.cases import MEAN, STD
from benchmarks.figures import ratios, spread
from benchmarks.measurement import in_turns, rate_of_side, run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.figures import Row

SIDES = ("mxnet", "ImageRecordIter", "AsyncDataLoader")
BATCH = 64
AREA, RATIO = (0.08, 1.0), (3 / 4, 4 / 3)


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
        options.update({"mean_" + name: mean * 255, "std_" + name: std * 255})
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

    crop = transforms.RandomResizedCrop(224, scale=AREA, ratio=RATIO, antialias=False)
    normalised = (transforms.ToTensor(), transforms.Normalize(MEAN, STD))
    augment = transforms.Compose([crop, transforms.RandomHorizontalFlip(), *normalised])
    dataset = aioloader.ImageRecordDataset(rec).transform_first(augment)
    meter = Meter(seconds)
    async with aioloader.AsyncDataLoader[Any](
        dataset, BATCH, shuffle=True, num_workers=cores, last_batch="rollover"
    ) as loader:
        while True:
            async for images, _ in loader:
                if not meter.seen(images):
                    return meter.rate()


def measure(
    side: str | None = None,
    rec: str | None = None,
    data: str | None = None,
    cores: int = 2,
    rounds: int = 5,
    seconds: float = 4.0,
    repeat: int = 24,
    sides: Sequence[str] = SIDES,
) -> Iterator[Row]:
    """Measure one side and print its rate, or some sides in turns.

    Args:
        side: one of the sides, under this interpreter.
        rec: the record file of one side, with its index next to it.
        data: folder.
        cores: threads or workers.
        rounds: measurements of each side.
        seconds: of a measurement.
        repeat: how often each file is in an epoch.
        sides: those that take turns.
    """
    if side and rec:
        if side == "AsyncDataLoader":
            print(asyncio.run(loader_rate(rec, cores, seconds)))
        else:
            mx = importlib.import_module("mxnet" if side == "mxnet" else "aioloader.mxnet")
            print(record_iter_rate(mx, rec, cores, seconds))
        return
    from benchmarks.data import load_jpegs, write_rec

    with tempfile.TemporaryDirectory() as scratch:
        path = Path(scratch, "images.rec")
        write_rec(path, load_jpegs(data), repeat)
        words = ("--rec", str(path), "--cores", str(cores), "--seconds", str(seconds))
        ways = {name: partial(rate_of_side, "image_record_iter", name, *words) for name in sides}
        found = in_turns(ways, rounds, warm=0)
    ours = found.pop("ImageRecordIter")
    yield {"side": "ImageRecordIter", "images/s": spread(ours)}
    for name, rates in found.items():
        yield {"side": name, "images/s": spread(rates), "ours, times it": ratios(ours, rates)}


if __name__ == "__main__":
    run(measure, rounds=1, seconds=0.3, repeat=2, sides=SIDES[1:])
