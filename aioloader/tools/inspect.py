"""Command `aioloader inspect`: describe a data set, measure its decoding, and give advice to load it faster."""

from __future__ import annotations

import argparse
import dataclasses
import json
import shlex
from typing import TYPE_CHECKING, Any

from aioloader.datasets.shards import pinned_path
from aioloader.errors import DecodeError
from aioloader.formats.base import (
    INDEX_NBYTES,
    PATTERN,
    Format,
    files_text,
    folders_text,
    formats_of_commands,
    image_folder,
    record_format,
)
from aioloader.formats.inspection import Inspection, Options, inspect_shards
from aioloader.formats.opening import head_of
from aioloader.formats.shards import open_shards, recognize_shards, record_files_at
from aioloader.foundation.host_limits import available_memory
from aioloader.foundation.validation import limit_text, size_text
from aioloader.observability.derived_metrics import LEAST_KEPT_GAIN, MOST_MEMORY
from aioloader.storage.urls import path_of, redact_url
from aioloader.tools.console import add_max_pixels, positive, seconds
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS
from aioloader.transforms.formats import read_header

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from aioloader.formats.inspection import CropIndexes, FieldFacts, Images, SampleIndexes, Sizes


_MOST_NAMED = 5
_MOST_BARS = 10
_LEAST_WITH_BAR = 20_000  # headers, bytes, files: less takes too short a time for a progress bar


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments and the texts of its help."""
    parser.description = (
        "Describe a data set from its headers and a sample of its images, with advice to load it faster. "
        "Exit codes: 0 described, even if a part is damaged; 1 it cannot be described, or no shard can be opened; "
        "2 wrong usage, or no such file."
    )
    parser.formatter_class = argparse.ArgumentDefaultsHelpFormatter
    parser.add_argument(
        "path",
        metavar="PATH",
        help=f"{files_text()}, a pattern such as '{PATTERN}', a folder of them or of images, {folders_text()[0]}, or "
        "the URL of one; a .lst file, an IDX or CIFAR file",
    )
    parser.add_argument(
        "--sample", type=positive, default=256, metavar="N", help="number of images to decode"
    )
    parser.add_argument(
        "--seconds",
        type=seconds,
        default=10.0,
        metavar="S",
        help="approximate time for reading headers; of a larger set an even sample is read",
    )
    parser.add_argument("--all", action="store_true", help="read all headers, regardless of the time")
    add_max_pixels(parser, "images of more pixels count as damaged, as the datasets refuse them by default")
    parser.add_argument("--json", action="store_true", help="print JSON")


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from contextlib import ExitStack

    from aioloader.observability.progress import ProgressBar

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
    """Yield the kind, the size and the speed, a list of damage and advice, and a table of facts."""
    yield f"{found.path}: {found.kind}" + ("" if found.files == 1 else f" in {found.files:,} files")
    name = "samples" if found.fields is not None else "images" if found.headers is None else "records"
    count = f"no {name} can be read" if found.unreadable else f"{found.records:,} {name}"
    yield f"{count}, {size_text(found.nbytes)}"
    images = found.images
    if images is not None and images.decode_us is not None and images.images_per_s is not None:
        yield f"a core decodes {images.images_per_s:,.0f} whole images/s, {images.decode_us:,.0f} µs an image"
    for prefix, lines in (("damage: ", found.damage), ("", found.advice)):
        yield from (f"- {prefix}{line}" for line in lines[:_MOST_NAMED])
        if len(lines) > _MOST_NAMED:
            yield f"- {prefix}and {len(lines) - _MOST_NAMED:,} more: --json lists all"
    for name, text in _facts(found):
        yield f"  {name:<12} {text}"


def _facts(found: Inspection) -> Iterator[tuple[str, str]]:
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
    if found.pixel_nbytes is not None and found.images is not None and found.images.pixel_nbytes is not None:
        memory = available_memory()
        free = "" if memory is None else f"; {size_text(memory)} of memory are free"
        yield (
            "as pixels",
            f"{size_text(found.pixel_nbytes)}, {size_text(found.images.pixel_nbytes)} an image{free}",
        )
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


def inspect(
    path: str | os.PathLike[str],
    *,
    sample: int = 256,
    seconds: float | None = 10.0,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    stage: Callable[[str, int], Callable[[int], Any]] | None = None,
) -> Inspection:
    """Describe a data set from headers and a sample of its images.

    Large files are not read as a whole: only the index and headers of record files, and the images of the sample. A
    record file without an .idx has to be scanned, however.

    Args:
        path: anything that `aioloader.open_dataset` reads, a .lst file, an IDX or CIFAR file, or an image.
        sample: number of images to decode, evenly spread over the set.
        seconds: approximate time for reading headers; after that an even sample of them is enough. None: read all.
        max_pixels: larger images count as damaged; None for no limit.
        stage: called at the start of a stage with its name and amount of work; returns a function that is called with
            the progress.

    Raises:
        FileNotFoundError: there is no such file or folder.
        OSError: a file cannot be read.
        RecordIOError: an index cannot be read at all.
        ValueError: it is not a data set of a known kind.
    """
    if sample < 1:
        raise ValueError(f"sample must be at least 1, got {sample}")
    name = path_of(path)
    options = Options(sample, seconds, max_pixels, stage or _no_stage)
    found = _inspect(name, options)
    return dataclasses.replace(found, path=redact_url(name), advice=list(advice_for(found)))


def _no_stage(label: str, total: int) -> Callable[[int], Any]:
    return lambda done: None


def _inspect(path: str, options: Options) -> Inspection:
    known = recognize_shards(path)
    if known is not None:
        if not known.format.has_fields:
            return _of_format(known.format, path, known.paths, options)
        kind = f"{known.format.name} {known.format.noun}"
        return inspect_shards(path, open_shards(known), kind, options)
    files = record_files_at(path)
    if not files:
        path = pinned_path(path)
        return _of_format(image_folder(), path, (path,), options)
    for each in (record_format(), *formats_of_commands()):
        found = each.inspect(path, files, options)
        if found is not None:
            return found
    try:
        read_header(head_of(path, INDEX_NBYTES))
    except DecodeError as error:
        if error.format is None:
            raise ValueError(
                f"{path!r} is not a record file, a .lst file or an image of a known format"
            ) from None
    return _of_format(image_folder(), path, files, options)


def _of_format(format: Format, path: str, files: Sequence[str], options: Options) -> Inspection:
    found = format.inspect(path, files, options)
    assert found is not None
    return found


_MANY_FILES = 1000
_LARGE = 480  # pixels of the shorter side above which training at 224 decodes far more than it needs
_SMALL = 64
_WORTH_CROPPING = 256  # pixels of the shorter side; crops of smaller images leave out little
_MOST_SHARE = 0.5
_UNEVEN = 10
_SHARE = 0.1


def advice_for(found: Inspection) -> Iterator[str]:
    """Yield advice on a data set, most urgent first.

    Args:
        found: the inspection of the data set.
    """
    path = shlex.quote(redact_url(found.path))  # a query may be a signature
    images = found.images
    is_folder = found.kind == "image folder"
    is_shards = found.fields is not None
    if found.damage or (images is not None and images.damaged):
        check = f"`aioloader verify --decode {path}` lists all damage"
        save = "" if is_folder or is_shards else ", `aioloader repair SRC DST` copies the valid records"
        skips = "" if found.unreadable else "; a loader with on_error='skip' skips damaged samples"
        yield f"{check}{save}{skips}"
    if found.details.get("shard_faults"):
        yield "check that these are all shards of one set, and only those: a pattern reads every file that matches it"
    if found.indexed is False and found.records:
        yield "write the missing .idx with `aioloader index FILE`: without it a file is scanned when it is first opened"
    indexes = found.sample_indexes
    if indexes is not None and (indexes.missing or indexes.stale) and not found.unreadable:
        yield (
            f"write the indexes of the shards with `aioloader index {path}`: without one a shard is scanned when it is "
            "first opened, on each machine"
        )
    if is_folder and found.records >= _MANY_FILES:
        yield (
            f"pack it (`aioloader pack {path} OUT`): {found.records:,} small files are slow to list and to read, above "
            "all on network and spinning disks"
        )
    if images is not None:
        yield from _for_images(images)
        if found.crop_indexes is not None and found.crop_indexes.faults:
            yield f"make the crop index that cannot be used again (`aioloader index --crops {path}`)"
        elif _wants_crop_index(images, found.crop_indexes):
            yield (
                f"make a crop index for random crops (`aioloader index --crops {path}`): they are decoded without the "
                "rest of the image, with the same pixels; the images stay unchanged"
            )
        yield from _for_keeping(images, found.pixel_nbytes)
    labels = found.labels
    if labels is not None and labels.whole and labels.classes > 1:
        most, fewest = labels.most[1], labels.fewest[1]
        if most >= _UNEVEN * fewest:
            yield (
                f"the classes are uneven, from {fewest:,} to {most:,} images: "
                "aioloader.samplers.ClassBalancedSampler draws them equally often"
            )


def _for_keeping(images: Images, nbytes: int | None) -> Iterator[str]:
    """Yield advice to keep decoded images in the memory of this machine."""
    memory, gain = available_memory(), images.kept_gain
    if nbytes is None or memory is None or gain < LEAST_KEPT_GAIN:
        return
    share = min(1.0, MOST_MEMORY * memory / nbytes)
    times = 1 / (1 - share + share / gain)
    if times < LEAST_KEPT_GAIN:
        return
    limit = limit_text(nbytes) if share == 1 else f'"{MOST_MEMORY * memory / 1e6:.0f}MB"'
    part = "all images" if share == 1 else f"{share:.0%} of the images"
    yield (
        f"keep decoded images: dataset.cache_samples({limit}), or images(PATH, decoded_cache={limit}), has room for "
        f"{part}, and makes random crops at about {times:.1f}x the speed from the second epoch on"
    )


def _wants_crop_index(images: Images, indexes: CropIndexes | None) -> bool:
    if indexes is None or indexes.files or images.width is None or images.height is None:
        return False
    jpegs = images.formats.get("jpeg", 0) / max(1, sum(images.formats.values()))
    shorter = min(images.width.median, images.height.median)
    return shorter >= _WORTH_CROPPING and jpegs * images.indexable > _MOST_SHARE


def _for_images(images: Images) -> Iterator[str]:
    if images.width is None or images.height is None:
        return
    shorter = min(images.width.median, images.height.median)
    jpegs = images.formats.get("jpeg", 0)
    share = jpegs / max(1, sum(images.formats.values()))
    raw = images.formats.get("raw", 0)
    if shorter > _LARGE and not raw:
        part = (_LARGE / shorter) ** 2
        yield (
            f"make images smaller if you train at about 224 pixels: with `aioloader pack --resize {_LARGE}` they have "
            f"about {part:.0%} of the pixels, and take about {part:.0%} of the time"
        )
    if jpegs and images.progressive > _SHARE:
        yield (
            f"{images.progressive:.0%} of the JPEGs are progressive, which take two to three times as long: "
            "`jpegtran -copy all -optimize` rewrites a file as a baseline JPEG, pixels unchanged"
        )
    if images.formats and share + raw / sum(images.formats.values()) < 1 - _SHARE:
        yield (
            f"{1 - share:.0%} of the images are not JPEGs, and slower to decode: `aioloader pack --resize PIXELS` "
            "encodes the images that it resizes as JPEGs, `--encoding raw` needs no decoder"
        )
    if shorter <= _SMALL and not raw:
        yield (
            "images as small as these are read faster as pixels: `aioloader pack --encoding raw` stores pixels, which "
            "need no decoding but several times the bytes"
        )
