"""Cost of crops by a crop index: its size, the time to make and to use it, the gain, and the pixels.

    python -m benchmarks.crop_index [--data FOLDER] [--rounds 7] [--large] [--cuts 200000]

The crops are RandomResizedCrop's (8 % to 100 % of the area). Ways take turns image by image in random order, each with
a fresh copy of the file, and their pixels are compared. The figures are CPU time of this thread. Before an
entry is used another image is decoded, so that the processor's caches are as in a worker.

``--cuts N`` compares N cuts with full decodes, bit for bit: of the folder's images and of copies of them with all
subsamplings, grey, odd sizes, optimised and standard tables, and restart markers, at all borders, with strict decoding.
``--large`` measures crops of 512 x 512 pixels of 12-megapixel images, which are mosaics of the folder's images; if
TensorFlow is installed, its ``decode_and_crop_jpeg`` too.
"""

from __future__ import annotations

import argparse
import io
import random
import statistics
import tempfile
import time
from collections import Counter
from itertools import cycle
from typing import TYPE_CHECKING, Any, NamedTuple

import cv2
import numpy as np
import simplejpeg
from PIL import Image

from aioloader import jpeg
from aioloader.jpeg.crop_entry import check_entry
from aioloader.jpeg.crop_scan import build_entry
from aioloader.jpeg.crop_window import cut_by_entry
from aioloader.jpeg.huffman import NotIndexableError
from aioloader.rng import Rng
from aioloader.transforms import RandomResizedCrop
from aioloader.transforms.lazy_image import LazyImageReader
from benchmarks.data import add_data_option, load_jpegs
from benchmarks.figures import Row, add_json_option, spread, write_figures
from benchmarks.mosaics import mosaics

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

RESIZED = np.zeros((224, 224, 3), np.uint8)
_SAMPLINGS = {"444": 0x111111, "422": 0x211111, "440": 0x121111, "420": 0x221111, "411": 0x411111}

Box = tuple[int, int, int, int]


class Picture(NamedTuple):
    """An image with its entry."""

    data: bytes
    frame: jpeg.Frame
    entry: bytes


def indexed(files: Sequence[bytes]) -> tuple[list[Picture], Counter[str]]:
    """Make the entries of images; return the images that have one, and the number refused for each reason."""
    found, refused = [], Counter[str]()
    for data in files:
        try:
            entry = build_entry(data)
        except NotIndexableError as error:
            refused[error.reason] += 1
            continue
        frame = jpeg.read_frame(data)
        assert frame is not None
        found.append(Picture(data, frame, entry))
    return found, refused


def _is_444(frame: jpeg.Frame) -> bool:
    """Return whether each pixel has its own chroma: an MCU is one block of 8 x 8 pixels."""
    return (frame.mcu_width, frame.mcu_height) == (8, 8)


def fresh(data: bytes) -> bytes:
    """Return a copy in other memory."""
    return bytes(bytearray(data))


def measured(call: Callable[..., Any], *arguments: Any) -> float:
    """Return the CPU time of a call in microseconds."""
    begin = time.thread_time()
    call(*arguments)
    return (time.thread_time() - begin) * 1e6


def making(pictures: Sequence[Picture], rounds: int) -> list[Row]:
    """Print the size of the entries and the time to make them; return the figures."""
    share = sum(len(each.entry) for each in pictures) / sum(len(each.data) for each in pictures)
    print(f"index: {share:.2%} of the images' bytes")
    makes: list[float] = []
    decodes: list[float] = []
    ways = ((makes, build_entry), (decodes, simplejpeg.decode_jpeg))
    for number in range(rounds):
        for each in pictures:
            for times, way in ways if number % 2 else reversed(ways):
                times.append(measured(way, fresh(each.data)))
    ratio = sum(makes) / sum(decodes)
    size, make = "entries, % of the bytes of the images", "making an entry, of the time of a full decode"
    print(
        f"making an entry: {statistics.median(makes):.0f} us (median), a full decode {statistics.median(decodes):.0f}; "
        f"{ratio:.2f} of a full decode in all"
    )
    return [{"measure": size, "value": 100 * share}, {"measure": make, "value": ratio}]


def using(pictures: Sequence[Picture], rounds: int) -> list[Row]:
    """Print the time to check an entry and to cut by it; return the figures."""
    crop, rng = RandomResizedCrop(224), Rng(1)
    checks, cuts = [], []
    for number in range(rounds * len(pictures)):
        each = pictures[number % len(pictures)]
        box = crop.box(each.frame.height, each.frame.width, rng)
        data = fresh(each.data)
        simplejpeg.decode_jpeg(pictures[(7 * number + 3) % len(pictures)].data)
        checks.append(measured(check_entry, each.entry, data))
        cuts.append(measured(cut_by_entry, data, each.frame, each.entry, box))
    both = [check + cut for check, cut in zip(checks, cuts, strict=True)]
    print(
        f"using an entry: {statistics.median(both):.0f} us (median), of which {statistics.median(checks):.0f} to check "
        "that it is intact and belongs to the image"
    )
    return [
        {"measure": "checking an entry, µs", "value": statistics.median(checks)},
        {"measure": "cutting by an entry, µs", "value": statistics.median(cuts)},
    ]


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


def gain(pictures: Sequence[Picture], rounds: int) -> list[Row]:
    """Print the time of a crop, resized to 224 x 224, by each way; return the figures."""
    crop, rng, order = RandomResizedCrop(224), Rng(0), random.Random(0)
    ways = crop_ways()
    times: dict[str, list[float]] = {name: [] for name in ways}
    ratios = []
    for _ in range(rounds):
        sums = Counter[str]()
        for each in pictures:
            box = crop.box(each.frame.height, each.frame.width, rng)
            parts = []
            for name in order.sample(list(ways), len(ways)):
                data = fresh(each.data)
                begin = time.thread_time()
                part = ways[name](each, data, box)
                cv2.resize(part, (224, 224), dst=RESIZED)
                spent = time.thread_time() - begin
                times[name].append(spent * 1e6)
                sums[name] += spent
                parts.append(part.copy())
            assert all(np.array_equal(part, parts[0]) for part in parts), "other pixels"
        ratios.append(dict(sums))
    print(f"crops resized to 224, {rounds} rounds of {len(pictures)} images, CPU time:")
    rows: list[Row] = []
    for name, values in times.items():
        shares = [each["early stop"] / each[name] for each in ratios]
        print(
            f"  {name:12} {statistics.fmean(values):7.0f} us (mean) {statistics.median(values):7.0f} (median)   "
            f"{statistics.median(shares):.2f}x early stop ({min(shares):.2f} to {max(shares):.2f})"
        )
        rows.append(
            {
                "crop by": name,
                "mean, µs": statistics.fmean(values),
                "of a full decode": spread(each[name] / each["full decode"] for each in ratios),
                "of an early stop": spread(each[name] / each["early stop"] for each in ratios),
            }
        )
    return rows


def copies(data: bytes, rng: random.Random) -> Iterator[tuple[str, bytes]]:
    """Yield an image as it is, and encoded again in other ways."""
    yield "as stored", data
    image = simplejpeg.decode_jpeg(data)
    height, width = (rng.randint(max(1, extent // 3), extent) for extent in image.shape[:2])
    part = np.ascontiguousarray(image[:height, :width])
    quality = rng.choice((30, 75, 90, 98))
    for name, factors in _SAMPLINGS.items():
        options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, factors]
        encoded = cv2.imencode(".jpg", part, options)[1].tobytes()
        yield f"{name}, standard tables", encoded
        frame = jpeg.read_frame(encoded)
        assert frame is not None
        interval = frame.mcus_per_row * rng.choice((1, 1, 2, 3))
        options += [cv2.IMWRITE_JPEG_RST_INTERVAL, interval]
        yield f"{name}, restart markers", cv2.imencode(".jpg", part, options)[1].tobytes()
    for subsampling, name in enumerate(("444", "422", "420")):
        yield f"{name}, optimised tables", _pillow(Image.fromarray(part), quality, subsampling=subsampling)
    yield "grey, optimised tables", _pillow(Image.fromarray(part).convert("L"), quality)
    yield "grey, standard tables", cv2.imencode(".jpg", part[..., 0].copy())[1].tobytes()


def _pillow(image: Image.Image, quality: int, **options: Any) -> bytes:
    file = io.BytesIO()
    image.save(file, "JPEG", quality=quality, optimize=True, **options)
    return file.getvalue()


def exactness(files: Sequence[bytes], count: int) -> None:
    """Compare cuts with full decodes and print the numbers."""
    rng, draw, crop = random.Random(0), Rng(5), RandomResizedCrop(224)
    done: Counter[str] = Counter()
    other: Counter[str] = Counter()
    for data in cycle(rng.sample(files, len(files))):
        if done.total() >= count:
            break
        for name, copy in copies(data, rng):
            frame = jpeg.read_frame(copy)
            interval = rng.choice((None, 1, 2, 3, 4, 7))
            try:
                entry = build_entry(copy, interval=interval)
            except NotIndexableError as error:
                other[f"not indexed: {error.reason}"] += 1
                continue
            assert frame is not None
            check_entry(entry, copy)
            grey = "GRAY" if frame.components == 1 else "RGB"
            whole = simplejpeg.decode_jpeg(copy, grey)
            for number in range(24):
                if number % 3:
                    box = _box(frame, rng)
                else:
                    box = crop.box(frame.height, frame.width, draw)
                cut = cut_by_entry(copy, frame, entry, box)
                if cut is None:
                    other["everything is needed"] += 1
                    continue
                part = simplejpeg.decode_jpeg(cut.data, grey, strict=True)
                x, y, width, height = box
                x -= cut.left
                y -= cut.top
                found = part[y : y + height, x : x + width]
                wanted = whole[box[1] : box[1] + height, box[0] : box[0] + width]
                assert np.array_equal(found, wanted), f"other pixels: {name}, {box}"
                done[name] += 1
    print(f"{done.total():,} cuts, all equal to the full decode, strictly decoded:")
    for name, number in sorted(done.items()):
        print(f"  {number:7,} {name}")
    for name, number in sorted(other.items()):
        print(f"  ({number:,} {name})")


def _box(frame: jpeg.Frame, rng: random.Random) -> Box:
    """Return a box: often at a border, of one pixel, or at a border of MCUs."""
    sides = []
    for extent, grain in ((frame.width, frame.mcu_width), (frame.height, frame.mcu_height)):
        size = min(extent, rng.choice((1, grain, rng.randint(1, 64), rng.randint(1, extent))))
        near = rng.randint(0, extent // grain) * grain + rng.choice((-1, 0, 1))
        start = rng.choice((0, extent - size, near, rng.randint(0, extent - size)))
        sides.append((min(max(0, start), extent - size), size))
    (x, width), (y, height) = sides
    return x, y, width, height


def large(files: Sequence[bytes], rounds: int) -> list[Row]:
    """Print the time of crops of 512 x 512 pixels of 12-megapixel images; return the figures."""
    pictures, _ = indexed(mosaics(files))
    rows = making(pictures, 2)
    ways = crop_ways()
    try:
        import tensorflow as tf
    except ImportError:
        print("TensorFlow is not installed: its decode_and_crop_jpeg is left out")
    else:
        tf.config.threading.set_inter_op_parallelism_threads(1)
        tf.config.threading.set_intra_op_parallelism_threads(1)

        def by_tensorflow(each: Picture, data: bytes, box: Box) -> Any:
            window = tf.constant((box[1], box[0], box[3], box[2]))
            return tf.io.decode_and_crop_jpeg(data, window, channels=3, dct_method="INTEGER_ACCURATE").numpy()

        ways["tensorflow"] = by_tensorflow
    rng, order = random.Random(1), random.Random(0)
    times: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(rounds):
        for each in pictures:
            box = (
                *(rng.randint(0, extent - 512) for extent in (each.frame.width, each.frame.height)),
                *(512, 512),
            )
            parts = {}
            for name in order.sample(list(ways), len(ways)):
                data = fresh(each.data)
                begin = time.process_time()
                parts[name] = ways[name](each, data, box)
                times[name].append((time.process_time() - begin) * 1e3)
                parts[name] = parts[name].copy()
            parts.pop("tensorflow", None)  # it interpolates chroma in another way at the borders of a crop
            assert all(np.array_equal(part, parts["full decode"]) for part in parts.values()), "other pixels"
    mean = statistics.fmean(len(each.data) for each in pictures)
    print(f"crops of 512 x 512 of 12-megapixel images of {mean / 1e6:.1f} MB, CPU time:")
    base = statistics.fmean(times["crop index"])
    for name, values in times.items():
        spent = statistics.fmean(values)
        rows.append({"crop of 512 x 512 by": name, "mean, ms": spent, "of a crop index": spent / base})
        print(
            f"  {name:12} {spent:7.2f} ms (mean) {statistics.median(values):7.2f} (median)   {spent / base:5.2f}"
        )
    return rows


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(
        prog="python -m benchmarks.crop_index",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    add_data_option(parser)
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--limit", type=int, default=1000, help="maximum number of images")
    parser.add_argument(
        "--smoke", action="store_true", help="one round of a few images, to see that it works"
    )
    parser.add_argument("--cuts", type=int, default=0, help="number of cuts to compare with full decodes")
    parser.add_argument("--large", action="store_true", help="measure 12-megapixel images")
    add_json_option(parser)
    options = parser.parse_args()
    if options.smoke:
        options.rounds, options.limit = 1, 8
    with tempfile.TemporaryDirectory() as scratch:
        files = load_jpegs(options.data, scratch)[: options.limit]
    files = [data for data in files if jpeg.read_frame(data) is not None]
    if options.cuts:
        exactness(files, options.cuts)
        return
    if options.large:
        write_figures(options.json, large(files, options.rounds))
        return
    pictures, refused = indexed(files)
    print(
        f"{len(pictures)} of {len(files)} images can be indexed",
        *(f"; {n} not: {why}" for why, n in refused.items()),
    )
    rows: list[Row] = [
        {"measure": "images with an entry", "value": len(pictures)},
        {
            "measure": "of them without subsampled chroma",
            "value": sum(_is_444(each.frame) for each in pictures),
        },
    ]
    rows += making(pictures, options.rounds)
    rows += using(pictures, options.rounds)
    rows += gain(pictures, options.rounds)
    write_figures(options.json, rows)


if __name__ == "__main__":
    main()
