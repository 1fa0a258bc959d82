"""Cost of crops by a crop index: its size, the time to make and to use it, the gain, and the pixels.

    python -m benchmarks.crop_index [--data FOLDER] [--rounds 7]

The crops are RandomResizedCrop's (8 % to 100 % of the area). Ways take turns image by image in random order, each with
a fresh copy of the file, and their pixels are compared. The figures are CPU time of this thread. Before an
entry is used another image is decoded, so that the processor's caches are as in a worker.
"""

from __future__ import annotations

import random
import time
from collections import Counter
from statistics import fmean, median
from typing import TYPE_CHECKING, Any, NamedTuple

import cv2
import numpy as np
import simplejpeg

from aioloader import jpeg
from aioloader.jpeg.crop_entry import check_entry
from aioloader.jpeg.crop_scan import build_entry
from aioloader.jpeg.crop_window import cut_by_entry
from aioloader.jpeg.huffman import NotIndexableError
from aioloader.rng import Rng
from aioloader.transforms import RandomResizedCrop
from aioloader.transforms.lazy_image import LazyImageReader
from benchmarks.data import load_jpegs
from benchmarks.figures import spread
from benchmarks.measurement import run, seconds_of

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from benchmarks.figures import Row

RESIZED = np.zeros((224, 224, 3), np.uint8)

Box = tuple[int, int, int, int]


class Picture(NamedTuple):
    """An image with its entry."""

    data: bytes
    frame: jpeg.Frame
    entry: bytes

    def fresh(self) -> bytes:
        """Return a copy of the file in other memory."""
        return bytes(bytearray(self.data))


def indexed(files: Sequence[bytes]) -> Iterator[Picture]:
    """Yield the images of which an entry can be made."""
    for data in files:
        frame = jpeg.read_frame(data)
        try:
            entry = build_entry(data)
        except NotIndexableError:
            continue
        assert frame is not None
        yield Picture(data, frame, entry)


def cpu_us(call: Callable[..., Any], *arguments: Any) -> float:
    """Return the CPU time of a call in microseconds."""
    return 1e6 * seconds_of(lambda: call(*arguments), time.thread_time)


def making(pictures: Sequence[Picture], rounds: int) -> Iterator[Row]:
    """Measure the size of the entries and the time to make them."""
    share = sum(len(each.entry) for each in pictures) / sum(len(each.data) for each in pictures)
    yield {"measure": "entries, % of the bytes of the images", "value": 100 * share}
    spent = {build_entry: 0.0, simplejpeg.decode_jpeg: 0.0}
    for number in range(rounds):
        for each in pictures:
            for way in spent if number % 2 else reversed(spent):
                spent[way] += cpu_us(way, each.fresh())
    ratio = spent[build_entry] / spent[simplejpeg.decode_jpeg]
    yield {"measure": "making an entry, of the time of a full decode", "value": ratio}


def using(pictures: Sequence[Picture], rounds: int) -> Iterator[Row]:
    """Measure the time to check an entry and to cut by it."""
    crop, rng = RandomResizedCrop(224), Rng(1)
    checks, cuts = [], []
    for number in range(rounds * len(pictures)):
        each = pictures[number % len(pictures)]
        box = crop.box(each.frame.height, each.frame.width, rng)
        data = each.fresh()
        simplejpeg.decode_jpeg(pictures[(7 * number + 3) % len(pictures)].data)
        checks.append(cpu_us(check_entry, each.entry, data))
        cuts.append(cpu_us(cut_by_entry, data, each.frame, each.entry, box))
    yield {"measure": "checking an entry, µs", "value": median(checks)}
    yield {"measure": "cutting by an entry, µs", "value": median(cuts)}


def crop_ways() -> dict[str, Callable[[Picture, bytes, Box], Any]]:
    """Return the ways to decode a crop, by name; each takes an image, a copy of its file, and the crop."""
    plain, skipping = LazyImageReader(), LazyImageReader()
    plain.rectangles = None
    ways: dict[str, Callable[[Picture, bytes, Box], Any]] = {
        "full decode": lambda each, data, box: simplejpeg.decode_jpeg(data)[
            box[1] : box[1] + box[3], box[0] : box[0] + box[2]
        ],
        "early stop": lambda each, data, box: plain.open(data).region(box),
        "crop index": lambda each, data, box: plain.open(data, entry=each.entry).region(box),
    }
    if skipping.rectangles is not None:
        ways["rectangle"] = lambda each, data, box: skipping.open(data).region(box)
    return ways


def gain(pictures: Sequence[Picture], rounds: int) -> Iterator[Row]:
    """Measure the time of a crop, resized to 224 x 224, by each way."""
    crop, rng, order = RandomResizedCrop(224), Rng(0), random.Random(0)
    ways = crop_ways()
    times: dict[str, list[float]] = {name: [] for name in ways}
    totals = []
    for _ in range(rounds):
        sums = Counter[str]()
        for each in pictures:
            box = crop.box(each.frame.height, each.frame.width, rng)
            parts = []
            for name in order.sample(list(ways), len(ways)):
                data = each.fresh()
                begin = time.thread_time()
                part = ways[name](each, data, box)
                cv2.resize(part, (224, 224), dst=RESIZED)
                spent = time.thread_time() - begin
                times[name].append(spent * 1e6)
                sums[name] += spent
                parts.append(part.copy())
            assert all(np.array_equal(part, parts[0]) for part in parts), "other pixels"
        totals.append(dict(sums))
    for name, values in times.items():
        row: Row = {"crop by": name, "mean, µs": fmean(values)}
        row["of a full decode"] = spread(each[name] / each["full decode"] for each in totals)
        yield {**row, "of an early stop": spread(each[name] / each["early stop"] for each in totals)}


def measure(data: str | None = None, rounds: int = 7, limit: int = 1000) -> Iterator[Row]:
    """Measure the entries of a folder's images.

    Args:
        data: folder.
        rounds: turns of each way.
        limit: maximum number of images.
    """
    files = [data for data in load_jpegs(data)[:limit] if jpeg.read_frame(data) is not None]
    pictures = list(indexed(files))
    # An MCU of one block of 8 x 8 pixels: each pixel has its own chroma.
    whole = sum((each.frame.mcu_width, each.frame.mcu_height) == (8, 8) for each in pictures)
    yield {"measure": "images with an entry", "value": len(pictures)}
    yield {"measure": "of them without subsampled chroma", "value": whole}
    for part in (making, using, gain):
        yield from part(pictures, rounds)


if __name__ == "__main__":
    run(measure, rounds=1, limit=8)
