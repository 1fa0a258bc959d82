"""Command `aioloader inspect`: describe a data set, measure its decoding, and give advice."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

from aioloader.cli.console import Commands, add_max_pixels, positive, seconds, size_text

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aioloader.tools.inspect import Inspection
    from aioloader.tools.inspect.report import CropIndexes, FieldFacts, Images, SampleIndexes, Sizes

_MOST_NAMED = 5
_MOST_BARS = 10
_LEAST_WITH_BAR = 20_000  # headers, bytes, files: less takes too short a time for a progress bar


def add(commands: Commands) -> None:
    """Add the command's parser."""
    inspect = commands.add_parser(
        "inspect",
        help="describe a data set: records, labels, images, how fast they decode, and how to load it faster",
        description="Describe a data set from its headers and a sample of its images, with advice to load it faster. "
        "Exit codes: 0 described, even if a part is damaged; 1 it cannot be described, or no shard can be opened; "
        "2 wrong usage, or no such file.",
        formatter_class=argparse.ArgumentDefaultsHelpFormatter,
    )
    inspect.add_argument(
        "path",
        metavar="PATH",
        help="a .rec, .tar, .tfrecord or .parquet file, a pattern such as 'train-*.tar', a folder of them or of "
        "images, an MDS folder, or the URL of one; a .lst file, an IDX or CIFAR file",
    )
    inspect.add_argument(
        "--sample", type=positive, default=256, metavar="N", help="number of images to decode"
    )
    inspect.add_argument(
        "--seconds",
        type=seconds,
        default=10.0,
        metavar="S",
        help="approximate time for reading headers; of a larger set an even sample is read",
    )
    inspect.add_argument("--all", action="store_true", help="read all headers, regardless of the time")
    add_max_pixels(inspect, "images of more pixels count as damaged, as the datasets refuse them by default")
    inspect.add_argument("--json", action="store_true", help="print JSON")
    inspect.set_defaults(command=_run)


def _run(options: argparse.Namespace) -> int:
    from contextlib import ExitStack

    from aioloader.observability.progress import ProgressBar
    from aioloader.tools.inspect import inspect

    bars = ExitStack()

    def stage(label: str, total: int) -> Callable[[int], Any]:
        bars.close()
        if total < _LEAST_WITH_BAR:
            return lambda done: None
        return bars.enter_context(ProgressBar(label, total, unit="")).update

    with bars:
        found = inspect(
            options.path,
            sample=options.sample,
            seconds=None if options.all else options.seconds,
            max_pixels=options.max_pixels,
            stage=stage,
        )
    print(json.dumps(found.facts(), indent=2) if options.json else "\n".join(_text(found)))
    return int(found.unreadable)


def _text(found: Inspection) -> Iterator[str]:
    files = "" if found.files == 1 else f" in {found.files:,} files"
    yield f"{found.path}: {found.kind}{files}"
    for name, text in _facts(found):
        yield f"  {name:<12} {text}"
    for name, lines in (("damage", found.damage), ("advice", found.advice)):
        for number, line in enumerate(lines[:_MOST_NAMED]):
            yield f"  {name if not number else '':<12} - {line}"
        if len(lines) > _MOST_NAMED:
            yield f"  {'':<12} - and {len(lines) - _MOST_NAMED:,} more: --json lists all"


def _facts(found: Inspection) -> Iterator[tuple[str, str]]:
    name = "samples" if found.fields is not None else "images" if found.headers is None else "records"
    count = "none can be read" if found.unreadable else f"{found.records:,}"
    yield name, f"{count}, {size_text(found.nbytes)}"
    if found.images_in_all is not None and found.images_in_all != found.records:
        yield "images", f"{found.images_in_all:,}"
    if found.headers is not None and found.headers < found.records:
        yield "headers", f"{found.headers:,} read, evenly spread: sizes and labels are of these records"
    if found.indexed is not None:
        yield "index", "yes" if found.indexed else "no"
    if found.sample_indexes is not None:
        yield "index", _sample_indexes(found.sample_indexes)
    if found.sizes is not None:
        yield "bytes each", _range(found.sizes)
    for number, each in enumerate(found.fields or ()):
        yield "" if number else "fields", _field(each)
    yield from _label_facts(found)
    for name, value in found.details.items():
        if name != "shards" and value not in (None, [], {}, 0):
            yield name.replace("_", " "), _detail(value)
    if found.images is not None:
        yield from _image_facts(found.images)
    if found.crop_indexes is not None and found.images is not None:
        yield "crop index", _crop_indexes(found.crop_indexes, found)


def _field(found: FieldFacts) -> str:
    text = f"{found.name}: {found.kind}, in {found.samples:,} samples"
    if found.sizes is not None:
        text += f", {_range(found.sizes)} bytes"
    if found.values:
        text += f", {', '.join(f'{name} {count:,}' for name, count in found.values.items())}"
    return text


def _sample_indexes(found: SampleIndexes) -> str:
    states = {
        "next to the shard": found.adjacent,
        "in the cache directory": found.cached,
        "of another state of the shard, or damaged": found.stale,
        "none": found.missing,
    }
    total = sum(states.values())
    parts = [name if count == total else f"{count:,} {name}" for name, count in states.items() if count]
    return ", ".join(parts) or "none"


def _crop_indexes(indexes: CropIndexes, found: Inspection) -> str:
    if indexes.faults:
        return "; ".join(indexes.faults)
    if not indexes.files:
        jpegs = 0 if found.images is None else found.images.formats.get("jpeg", 0)
        share = (
            ""
            if found.images is None or not jpegs
            else f"; {found.images.indexable:.0%} of the JPEGs can be in one"
        )
        return f"no{share}"
    of_files = found.headers is not None or found.fields is not None
    files = "" if indexes.files == found.files or not of_files else f" of {indexes.files:,} files"
    size = f"{size_text(indexes.nbytes)}, {indexes.share:.1%} of the size of their images"
    return f"{indexes.entries:,} entries for {indexes.images:,} images{files}, {size}"


def _label_facts(found: Inspection) -> Iterator[tuple[str, str]]:
    labels = found.labels
    if labels is not None and labels.whole:
        (most, most_count), (fewest, fewest_count) = labels.most, labels.fewest
        yield (
            "classes",
            f"{labels.classes:,}, from {labels.smallest:g} to {labels.largest:g}; most images: {most_count:,} (class "
            f"{most:g}), fewest: {fewest_count:,} (class {fewest:g})"
            + (f"; {labels.absent:,} between them without images" if labels.absent else ""),
        )
    elif labels is not None:
        yield (
            "labels",
            f"{labels.classes:,} different numbers, from {labels.smallest:g} to {labels.largest:g}",
        )
    if labels is not None and labels.classes > 1:
        yield "histogram", _histogram(labels.counts)
    if set(found.label_widths) - {1}:
        widths = ", ".join(f"{width} ({count:,})" for width, count in list(found.label_widths.items())[:8])
        yield "label width", f"{widths}{', ...' if len(found.label_widths) > 8 else ''}"


def _histogram(counts: Mapping[float, int]) -> str:
    """Return the number of images of each label; of many labels, neighbours are counted together."""
    labels = list(counts)
    width = -(-len(labels) // _MOST_BARS)
    bars = []
    for low in range(0, len(labels), width):
        these = labels[low : low + width]
        name = f"{these[0]:.9g}" + (f" to {these[-1]:.9g}" if len(these) > 1 else "")
        bars.append(f"{name}: {sum(counts[label] for label in these):,}")
    return ", ".join(bars)


def _image_facts(images: Images) -> Iterator[tuple[str, str]]:
    yield "sample", f"{images.looked_at:,} images decoded"
    if images.formats:
        yield "formats", ", ".join(f"{name} {count:,}" for name, count in images.formats.items())
    if images.width is not None and images.height is not None:
        yield "width", _range(images.width)
        yield "height", _range(images.height)
    if images.formats.get("jpeg"):
        yield "JPEGs", f"{images.progressive:.0%} progressive"
    if images.turned:
        yield "turned", f"{images.turned:.0%}, by their EXIF orientation"
    if images.decode_us is not None and images.images_per_s is not None:
        yield (
            "decoding",
            f"{images.decode_us:,.0f} µs an image, {images.images_per_s:,.0f} images/s a core, whole images",
        )
    alike: dict[str, list[object]] = {}
    for key, reason in images.damaged:
        alike.setdefault(reason, []).append(key)
    for reason, keys in list(alike.items())[:_MOST_NAMED]:
        more = f" and {len(keys) - 1:,} more" if len(keys) > 1 else ""
        yield "damaged", f"{keys[0]}{more}: {reason}"
    rest = sum(map(len, list(alike.values())[_MOST_NAMED:]))
    if rest:
        yield "", f"and {rest:,} more of the sample"


def _detail(value: Any) -> str:
    if isinstance(value, dict):
        return ", ".join(f"{name or 'none'} {_number(each)}" for name, each in value.items())
    if isinstance(value, list):
        return ", ".join(map(_number, value[:8])) + (", ..." if len(value) > 8 else "")
    return _number(value)


def _number(value: Any) -> str:
    if isinstance(value, float):
        return f"{value:,.6g}"
    return f"{value:,}" if isinstance(value, int) else str(value)


def _range(sizes: Sizes) -> str:
    if sizes.smallest == sizes.largest:
        return f"{sizes.smallest:,.0f}"
    return (
        f"{sizes.smallest:,.0f} to {sizes.largest:,.0f}, median {sizes.median:,.0f}, mean {sizes.mean:,.0f}"
    )
