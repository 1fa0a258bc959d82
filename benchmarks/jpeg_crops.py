"""Cost of a crop of a JPEG: full decode and early stop, on the same images and crops.

    python benchmarks/jpeg_crops.py --data FOLDER --rounds 5

The crops are RandomResizedCrop's (8 % to 100 % of the area). The two take turns image by image in random order, and
their pixels are compared. The figures are CPU time of this thread, so other programs disturb little. Times include
reading the headers and cutting; "resized" adds a bilinear resize to 224 x 224.
"""

from __future__ import annotations

import argparse
import random
import statistics
import sys
import time
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import simplejpeg

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))

from aioloader import jpeg
from aioloader.rng import Rng
from aioloader.transforms import RandomResizedCrop

BUFFER = np.zeros(1 << 27, np.uint8)
RESIZED = np.zeros((224, 224, 3), np.uint8)


def full(data: bytes, box: tuple[int, int, int, int]) -> Any:
    """Return the crop, cut from a full decode."""
    x, y, width, height = box
    return simplejpeg.decode_jpeg(data, buffer=BUFFER, strict=True)[y : y + height, x : x + width]


def partial(data: bytes, box: tuple[int, int, int, int]) -> Any:
    """Return the crop, decoded from the part of the file that it needs."""
    frame = jpeg.read_frame(data)
    found = None if frame is None else jpeg.cut(data, frame, box)
    if found is None:
        return full(data, box)
    buffer = BUFFER[: found.height * found.width * 3]
    try:
        simplejpeg.decode_jpeg(found.data, buffer=buffer, strict=True)
    except ValueError as error:
        if not (found.stops_early and jpeg.harmless(str(error))):
            return full(data, box)
    x, y, width, height = box[0] - found.left, box[1] - found.top, box[2], box[3]
    return buffer.reshape(found.height, found.width, 3)[y : y + height, x : x + width]


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--data", type=Path, required=True, help="folder of JPEGs, searched through")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--limit", type=int, default=500, help="maximum number of images")
    options = parser.parse_args()

    found = sorted(path for path in options.data.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    images = [path.read_bytes() for path in found[: options.limit]]
    images = [data for data in images if jpeg.read_frame(data) is not None]
    ways = {"full decode": full, "early stop": partial}
    crop, rng = RandomResizedCrop(224), Rng(0)
    order = random.Random(0)
    plain: dict[str, list[float]] = {name: [] for name in ways}
    resized: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(options.rounds):
        for data in images:
            frame = jpeg.read_frame(data)
            assert frame is not None
            box = crop.box(frame.height, frame.width, rng)
            pixels = {}
            for name in order.sample(list(ways), len(ways)):
                begin = time.thread_time()
                part = ways[name](data, box)
                middle = time.thread_time()
                cv2.resize(part, (224, 224), dst=RESIZED)
                plain[name].append(middle - begin)
                resized[name].append(time.thread_time() - begin)
                pixels[name] = part.copy()
            for name, part in pixels.items():
                assert np.array_equal(part, pixels["full decode"]), f"{name}: other pixels"
    count = len(images) * options.rounds
    print(
        f"{count} crops of {len(images)} images; CPU time in ms (mean, median), and the means' ratio to a full decode"
    )
    for name in ways:
        line = f"{name:12}"
        for times in (plain, resized):
            mean, base = statistics.fmean(times[name]), statistics.fmean(times["full decode"])
            line += f"   {mean * 1e3:6.3f} {statistics.median(times[name]) * 1e3:6.3f} {mean / base:6.3f}"
            line += "  resized:" if times is plain else ""
        print(line)


if __name__ == "__main__":
    main()
