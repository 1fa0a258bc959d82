"""Cost of a sample on one core: bytes to the batch's row, with separate and with fused decoder and transforms.

A lower bound, with decoder and OpenCV called by hand into kept buffers and the whole image decoded, takes turns with
both on the same records with the same draws. No files, no workers, no batches. The figures are processor time, which
a busy machine changes less; medians over the rounds.

    python -m benchmarks.fused_path --data FOLDER
"""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import dataclass
from statistics import median
from time import process_time
from typing import TYPE_CHECKING, Any

import cv2
import numpy as np
import simplejpeg

import recordio
from aioloader import transforms as T
from aioloader.datasets.decoding import ImageRecordDecoder
from aioloader.datasets.stage import Stage
from aioloader.foundation.types import ItemLocation, StageTimer
from aioloader.rng import Rng
from benchmarks.data import add_data_option, load_jpegs

if TYPE_CHECKING:
    from collections.abc import Callable

FACTS = ItemLocation()
NORMALIZED = (T.ToTensor(), T.Normalize(T.IMAGENET_MEAN, T.IMAGENET_STD))
TRAIN = (T.RandomResizedCrop(224, antialias=False), T.RandomHorizontalFlip())


@dataclass(frozen=True)
class Case:
    """Chain of transforms, with its input and the shape and dtype of a row."""

    name: str
    faces: bool
    chain: tuple[Any, ...]
    shape: tuple[int, ...]
    dtype: Any


CASES = (
    Case("photos, crop and flip, uint8", False, TRAIN, (224, 224, 3), np.uint8),
    Case("photos, crop and flip, float32", False, (*TRAIN, *NORMALIZED), (3, 224, 224), np.float32),
    Case(
        "photos, middle, uint8",
        False,
        (T.Resize(256, antialias=False), T.CenterCrop(224)),
        (224, 224, 3),
        np.uint8,
    ),
    Case("faces, flip, uint8", True, (T.RandomHorizontalFlip(),), (112, 112, 3), np.uint8),
    Case("faces, flip, float32", True, (T.RandomHorizontalFlip(), *NORMALIZED), (3, 112, 112), np.float32),
)


def least(case: Case) -> Callable[[bytes, int, Any], None]:
    """Run only the calls that decoding whole images needs."""
    rng = Rng(0)
    side = 112 if case.faces else 224
    scratch = np.empty(1 << 24, np.uint8)
    pixels = np.empty((side, side, 3), np.uint8)
    resized = np.empty((1 << 12) * 256 * 3, np.uint8)
    planes = [np.empty((side, side), np.uint8) for _ in range(3)]
    normalised = len(case.shape) == 3 and case.dtype == np.float32
    first = case.chain[0]

    def run(jpeg: bytes, index: int, row: Any) -> None:
        rng.seek(0, 0, index)
        image = pixels if normalised else row
        if case.faces:
            simplejpeg.decode_jpeg(jpeg, buffer=image)
        else:
            height, width, _, _ = simplejpeg.decode_jpeg_header(jpeg)
            whole = simplejpeg.decode_jpeg(jpeg, buffer=scratch)
            if isinstance(first, T.Resize):
                w, h = first.target(height, width)
                larger = resized[: w * h * 3].reshape(h, w, 3)
                cv2.resize(whole, (w, h), dst=larger)
                x, y = (w - side) // 2, (h - side) // 2
                image[...] = larger[y : y + side, x : x + side]
                return
            x, y, w, h = first.box(height, width, rng)
            cv2.resize(whole[y : y + h, x : x + w], (side, side), dst=image)
        if rng.random() < 0.5:
            cv2.flip(image, 1, dst=image)
        if normalised:
            cv2.split(image, planes)
            for plane, place in zip(planes, row, strict=True):
                np.multiply(plane, np.float32(0.017), out=place, dtype=np.float32)
                np.subtract(place, np.float32(2.0), out=place)

    return run


def separate(case: Case) -> Callable[[Any, int, Any], None]:
    """Run the dataset's decoder, then the transforms."""
    decoder, stage, rng = ImageRecordDecoder(), Stage(T.Compose(case.chain), first=True), Rng(0)

    def run(record: Any, index: int, row: Any) -> None:
        rng.seek(0, 0, index)
        image, _ = stage.apply(decoder(record, None, FACTS), rng, row)
        if image is not row:
            row[...] = image

    return run


def fused(case: Case) -> Callable[[Any, int, Any], None]:
    """Run the fused decoder."""
    stage, rng, trace = Stage(T.Compose(case.chain), first=True), Rng(0), StageTimer([0.0])
    sample = ImageRecordDecoder().fuse((stage,))

    def run(record: Any, index: int, row: Any) -> None:
        rng.seek(0, 0, index)
        image, _ = sample(record, None, FACTS, rng=rng, out=row, trace=trace)
        if image is not row:
            row[...] = image

    return run


def measure(run: Callable[[Any, int, Any], None], items: list[Any], rows: Any) -> float:
    """Return microseconds of processor time per item."""
    start = process_time()
    for index, item in enumerate(items):
        run(item, index, rows[index % len(rows)])
    return (process_time() - start) / len(items) * 1e6


def compare(case: Case, jpegs: list[bytes], rounds: int) -> None:
    """Take turns, then print a line."""
    if case.faces:
        jpegs = [_face(jpeg) for jpeg in jpegs] * 8
    records = [_record(jpeg, number) for number, jpeg in enumerate(jpegs)]
    rows = np.zeros((64, *case.shape), case.dtype)
    ways = (least(case), jpegs), (separate(case), records), (fused(case), records)
    for run, items in ways:
        measure(run, items, rows)
    times = [[measure(run, items, rows) for run, items in ways] for _ in range(rounds)]
    by_hand, one_by_one, together = (median(column) for column in zip(*times, strict=True))
    ratio = median(bare / mine for bare, _, mine in times)
    print(
        f"{case.name:32} least {by_hand:7.1f}  separate {one_by_one:7.1f}  fused {together:7.1f} us"
        f"   least/fused: median {ratio:.3f}"
    )


def _face(jpeg: bytes) -> bytes:
    image = cv2.imdecode(np.frombuffer(jpeg, np.uint8), cv2.IMREAD_COLOR)
    small = cv2.resize(image, (112, 112), interpolation=cv2.INTER_AREA)
    return bytes(cv2.imencode(".jpg", small, [cv2.IMWRITE_JPEG_QUALITY, 90])[1])


def _record(jpeg: bytes, number: int) -> memoryview:
    payload = recordio.pack((0, float(number), number, 0), jpeg)
    head = recordio.MAGIC.to_bytes(4, "little") + len(payload).to_bytes(4, "little")
    return memoryview(head + payload + bytes(-len(payload) % 4))


def main() -> None:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description="cost of a sample on one core: least, separate, fused")
    add_data_option(parser)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument(
        "--smoke",
        action="store_true",
        help="one round of few images: a check that it runs, not a measurement",
    )
    options = parser.parse_args()
    cv2.setNumThreads(1)
    with tempfile.TemporaryDirectory() as scratch:
        jpegs = load_jpegs(options.data, scratch)
    if options.smoke:
        jpegs, options.rounds = jpegs[:8], 1
    for case in CASES:
        compare(case, jpegs, options.rounds)


if __name__ == "__main__":
    main()
