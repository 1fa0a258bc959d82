"""Inspection of data sets: options and result, what formats share to describe theirs, and the description of shards.

A sample of the images is decoded as by a loader. Millions of headers take seconds from memory or a fast disk, and
minutes from a slow one: they are read in passes over the whole file, so that reading can stop after any pass with an
even sample.
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict, dataclass, field
from time import monotonic, thread_time
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.crop_index.reader import CropIndex
from aioloader.datasets.fields import FieldKind
from aioloader.datasets.resolve import version_at
from aioloader.datasets.shard_tables import NumberKeys
from aioloader.datasets.shards import files_of
from aioloader.errors import CropIndexError
from aioloader.foundation.types import StageTimer
from aioloader.jpeg.frame import SOF2, read_frame
from aioloader.rng import Rng
from aioloader.sample_index import IndexState, index_state
from aioloader.storage.urls import redact_url
from aioloader.transforms.decode import decode_image
from aioloader.transforms.formats import read_header
from aioloader.transforms.fused import plan_of
from aioloader.transforms.geometry import RandomResizedCrop
from aioloader.transforms.lazy_image import LazyImageReader, Scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence

    from aioloader.abc import ByteSource
    from aioloader.crop_index.layout import CropFiles
    from aioloader.datasets.files import FileDataset
    from aioloader.datasets.shard_dataset import ShardDataset
    from aioloader.foundation.types import Array, IntArray, Spans


@dataclass(frozen=True, slots=True)
class Options:
    """Options of `inspect`.

    Attributes:
        sample: number of images to decode, evenly spread over the set.
        seconds: approximate time for reading headers; after that an even sample of them is enough. None: read all.
        max_pixels: larger images count as damaged; None for no limit.
        stage: called at the start of a stage with its name and amount of work; returns a function that is called with
            the progress.
    """

    sample: int
    seconds: float | None
    max_pixels: int | None
    stage: Callable[[str, int], Callable[[int], Any]]


@dataclass(frozen=True, slots=True)
class Sizes:
    """Summary of some numbers: the smallest, the median, the mean and the largest."""

    smallest: float
    median: float
    mean: float
    largest: float


@dataclass(frozen=True, slots=True)
class Labels:
    """Statistics of scalar labels.

    Attributes:
        classes: number of different labels.
        smallest, largest: the smallest and the largest label.
        most, fewest: (label, number of images) of the classes with most and with fewest images.
        whole: whether all are integers, as labels of classes are.
        absent: number of integers between the smallest and the largest label that no image has.
        counts: number of images of each label, in ascending order of the labels.
    """

    classes: int
    smallest: float
    largest: float
    most: tuple[float, int]
    fewest: tuple[float, int]
    whole: bool
    absent: int
    counts: dict[float, int] = field(repr=False)


@dataclass(frozen=True, slots=True)
class CropIndexes:
    """Crop indexes of a data set.

    Attributes:
        files: number of record files, or folders, that have one.
        images: number of images in them.
        entries: number of these images that have an entry; the others can have none.
        nbytes: total size of the indexes.
        jpeg_nbytes: total size of the images that have an entry.
        faults: descriptions of indexes that cannot be used.
    """

    files: int = 0
    images: int = 0
    entries: int = 0
    nbytes: int = 0
    jpeg_nbytes: int = 0
    faults: list[str] = field(default_factory=list)

    @property
    def share(self) -> float:
        """Return the size of the indexes as a share of the size of the images that have an entry."""
        return self.nbytes / self.jpeg_nbytes if self.jpeg_nbytes else 0.0


@dataclass(frozen=True, slots=True)
class FieldFacts:
    """Statistics of a field of the samples of shards, of the samples that were examined.

    Attributes:
        name: of the field.
        kind: how its value becomes an element of a sample: "image", "json", "text", "integer", "bytes" or "value".
        samples: number of samples that have it.
        sizes: bytes of the values that are stored as bytes; None for others.
        values: descriptions of other values, such as "int64" or "float32 3x2", with their numbers.
    """

    name: str
    kind: str
    samples: int
    sizes: Sizes | None = None
    values: dict[str, int] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class SampleIndexes:
    """Sample indexes of shards: the number of shards by the state of their index.

    Attributes:
        adjacent: it is next to the shard and fits.
        cached: it is in the user's cache directory and fits.
        stale: there is one of another state of the shard, or a damaged one, and none that fits.
        missing: there is none.
    """

    adjacent: int = 0
    cached: int = 0
    stale: int = 0
    missing: int = 0


@dataclass(frozen=True, slots=True)
class Images:
    """Statistics of a sample of images that were decoded.

    Attributes:
        looked_at: number of images of the sample.
        formats: number of images of each format, without damaged ones.
        width, height: in pixels, as stored.
        progressive: share of JPEGs that are progressive, which take two to three times as long to decode.
        indexable: share of JPEGs that can probably have an entry of a crop index, by their headers.
        turned: share of images that their EXIF orientation rotates or mirrors.
        decode_us: microseconds of CPU time to decode a whole image, in one thread of this machine; the mean.
        images_per_s: images that one core decodes in a second.
        pixel_nbytes: bytes of the pixels of an image, as datasets decode it; the mean.
        crop_us: microseconds of CPU time to make a RandomResizedCrop of 224 pixels of the encoded image, as a loader
            does without a crop index; the mean.
        kept_crop_us: the same of the decoded image.
        damaged: (key or path, reason) of images that cannot be decoded.
    """

    looked_at: int
    formats: dict[str, int]
    width: Sizes | None
    height: Sizes | None
    progressive: float
    indexable: float
    turned: float
    decode_us: float | None
    images_per_s: float | None
    pixel_nbytes: float | None
    crop_us: float | None
    kept_crop_us: float | None
    damaged: list[tuple[Any, str]]

    @property
    def kept_gain(self) -> float:
        """Return how many times as fast crops are made of decoded images; 1 if it is not known."""
        return self.crop_us / self.kept_crop_us if self.crop_us and self.kept_crop_us else 1.0


@dataclass(frozen=True, slots=True)
class Inspection:
    """Description of a data set.

    Attributes:
        path: path as the caller passed it.
        kind: "empty", "plain records", "packed images", "packed images with label vectors", "detection", "image list",
            "image folder", "IDX files", "CIFAR files", "image", or the name of a format, for most with that of its
            samples.
        files: number of its files, without indexes.
        nbytes: total size of these files.
        records: number of records or samples, or of images where there are neither.
        images_in_all: number of images; None if only a sample was read.
        headers: number of records whose headers were read, for sizes and labels; None without record files.
        indexed: whether all record files have an .idx; None for others.
        sizes: sizes of the records' payloads, or of the images' files, in bytes.
        labels: scalar labels; None if there are none.
        label_widths: number of records by the width of their label vectors; 1 means a scalar label.
        images: statistics of a sample; None if there are no images.
        crop_indexes: its crop indexes; None for kinds that have none.
        fields: fields of the samples of shards; None for other kinds.
        sample_indexes: indexes of the samples of shards; None for kinds that have none.
        details: values that only this kind has; see "Inspect" in docs/tools.md.
        damage: descriptions of damage that was noticed; `aioloader verify` finds more.
        advice: advice to load it faster or more safely.
    """

    path: str
    kind: str
    files: int
    nbytes: int
    records: int
    images_in_all: int | None = None
    headers: int | None = None
    indexed: bool | None = None
    sizes: Sizes | None = None
    labels: Labels | None = None
    label_widths: dict[int, int] = field(default_factory=dict)
    images: Images | None = None
    crop_indexes: CropIndexes | None = None
    fields: list[FieldFacts] | None = None
    sample_indexes: SampleIndexes | None = None
    details: dict[str, Any] = field(default_factory=dict)
    damage: list[str] = field(default_factory=list)
    advice: list[str] = field(default_factory=list)

    @property
    def pixel_nbytes(self) -> int | None:
        """Return the bytes of the pixels of all images, estimated from the sample; None if there are no images."""
        images = self.images
        count = self.records if self.images_in_all is None else self.images_in_all
        return None if images is None or not images.pixel_nbytes else round(images.pixel_nbytes * count)

    @property
    def unreadable(self) -> bool:
        """Return True for shards of which none can be opened."""
        return self.fields is not None and not self.records and bool(self.damage)

    def facts(self) -> dict[str, Any]:
        """Return the description as JSON values."""
        facts = asdict(self)
        facts["pixel_nbytes"] = self.pixel_nbytes
        if self.labels is not None:
            facts["labels"]["counts"] = [
                [_plain(label), count] for label, count in self.labels.counts.items()
            ]
            for name in ("smallest", "largest"):
                facts["labels"][name] = _plain(facts["labels"][name])
        return facts


def _plain(label: float) -> float:
    return int(label) if label.is_integer() else label


def sizes_of(values: Array) -> Sizes | None:
    """Summarise some numbers; return None if there are none.

    Args:
        values: (n,).
    """
    if not len(values):
        return None
    return Sizes(
        float(np.min(values)), float(np.median(values)), float(np.mean(values)), float(np.max(values))
    )


def labels_of(counts: Mapping[float, int]) -> Labels | None:
    """Compute the statistics of scalar labels; return None if there are none.

    Args:
        counts: number of images of each label; neither NaN nor infinity may be among the labels.
    """
    if not counts:
        return None
    ordered = dict(sorted(counts.items()))
    found = list(ordered)
    whole = all(label.is_integer() for label in found)
    most = max(found, key=lambda label: ordered[label])
    fewest = min(found, key=lambda label: ordered[label])
    span = int(found[-1] - found[0]) + 1 if whole else len(found)
    return Labels(
        classes=len(found),
        smallest=found[0],
        largest=found[-1],
        most=(most, ordered[most]),
        fewest=(fewest, ordered[fewest]),
        whole=whole,
        absent=span - len(found),
        counts=ordered,
    )


# Smaller images are not worth an entry.
_LEAST_NBYTES = 8192


def crop_indexes(indexed: CropFiles) -> CropIndexes:
    """Examine the crop indexes of files, or of a folder, at their usual places."""
    files = images = entries = nbytes = jpeg_nbytes = 0
    faults = []
    for path in indexed.paths:
        place = indexed.place(path)
        try:
            index = CropIndex(place)
            refused = sum(index.refused().values())
        except FileNotFoundError:
            continue
        except (OSError, CropIndexError) as error:
            faults.append(f"the crop index cannot be used: {error}")
            continue
        index.close()
        files += 1
        images += len(index)
        entries += len(index) - refused
        nbytes += os.path.getsize(place)
        jpeg_nbytes += index.header.jpeg_nbytes
    return CropIndexes(files, images, entries, nbytes, jpeg_nbytes, faults)


def may_be_indexed(data: Any) -> bool:
    """Return whether a JPEG can probably have an entry, by its headers and its size.

    Args:
        data: the file; bytes, or a memoryview of bytes.
    """
    frame = read_frame(data)
    return (
        frame is not None and len(data) >= _LEAST_NBYTES and frame.restart_interval % frame.mcus_per_row == 0
    )


_ENOUGH_S = 0.02
_MOST_ROUNDS = 5


def images_in(
    sample: Iterable[tuple[object, Any]],
    *,
    max_pixels: int | None,
    tick: Callable[[int], Any] | None = None,
) -> Images:
    """Examine and decode images.

    Args:
        sample: name (a key, or a path) and encoded image of each; an exception in place of an image that cannot be
            read.
        max_pixels: larger images count as damaged; None for no limit.
        tick: called with the number of images done so far.
    """
    looked_at = progressive = indexable = turned = 0
    formats: Counter[str] = Counter()
    widths, heights, nbytes, seconds = [], [], [], []
    damaged: list[tuple[Any, str]] = []
    scratch = Scratch()
    crops = _CropTimer(max_pixels)
    for name, data in sample:
        looked_at += 1
        try:
            if isinstance(data, Exception):
                raise data
            data = memoryview(data)
            header = read_header(data)
            took, pixels = _decode_seconds(data, max_pixels, scratch)
            seconds.append((took, *crops.seconds(data, pixels)))
            nbytes.append(pixels.nbytes)
            del pixels  # so that the pool has its memory again
        except (OSError, ValueError, EOFError) as error:
            # Without the advice that some of this package's errors add: advice is given once for all images.
            text = getattr(error, "message", "") or str(error)
            damaged.append((name, " ".join(text.split())))
        else:
            formats[header.format] += 1
            widths.append(header.width)
            heights.append(header.height)
            if header.format == "jpeg":
                progressive += is_progressive(data)
                indexable += may_be_indexed(data)
            turned += (header.orientation or 1) != 1
        if tick is not None:
            tick(looked_at)
    jpegs = max(1, formats["jpeg"])
    means = (np.mean(seconds, axis=0) * 1e6).tolist() if seconds else [None] * 3
    return Images(
        looked_at=looked_at,
        formats=dict(formats.most_common()),
        width=sizes_of(np.array(widths)),
        height=sizes_of(np.array(heights)),
        progressive=progressive / jpegs,
        indexable=indexable / jpegs,
        turned=turned / max(1, len(widths)),
        decode_us=means[0],
        images_per_s=1e6 / means[0] if means[0] else None,
        pixel_nbytes=float(np.mean(nbytes)) if nbytes else None,
        crop_us=means[1],
        kept_crop_us=means[2],
        damaged=damaged,
    )


def _decode_seconds(data: Any, max_pixels: int | None, scratch: Scratch) -> tuple[float, Array]:
    """Measure the CPU seconds to decode an image, of a small one the minimum of a few repetitions; return it, too."""
    least, total = float("inf"), 0.0
    for _ in range(_MOST_ROUNDS):
        begun = thread_time()
        pixels = decode_image(data, max_pixels=max_pixels, scratch=scratch)
        took = thread_time() - begun
        least, total = min(least, took), total + took
        if total > _ENOUGH_S:
            break
    return least, pixels


class _CropTimer:
    """Measurement of random crops of encoded and decoded images, which a loader makes by the same code."""

    def __init__(self, max_pixels: int | None) -> None:
        self._plan = plan_of(LazyImageReader(max_pixels=max_pixels), [("crop", RandomResizedCrop(224))])
        self._rng = Rng(0)
        self._timer = StageTimer(transforms=[0.0])
        self._number = 0

    def seconds(self, *images: Any) -> list[float]:
        """Measure the CPU seconds for the same crop of each form of an image, the minimum of a few repetitions."""
        least = [float("inf")] * len(images)
        self._number += 1
        total = 0.0
        for _ in range(_MOST_ROUNDS):
            for place, image in enumerate(images):
                self._rng.seek(0, 0, self._number)
                begun = thread_time()
                self._plan(image, None, self._rng, None, self._timer)
                took = thread_time() - begun
                least[place], total = min(least[place], took), total + took
            if total > _ENOUGH_S:
                break
        return least


def is_progressive(data: Any) -> bool:
    """Return whether a JPEG is progressive, by its frame header.

    Args:
        data: the file; bytes, or a memoryview of bytes.
    """
    if read_frame(data) is not None:
        return False
    place = 2
    while place + 4 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker == SOF2:
            return True
        if marker == 0xFF:
            place += 1
        elif marker == 0x01 or 0xD0 <= marker <= 0xD8:
            place += 2
        elif 0xC0 <= marker <= 0xCF and marker not in (0xC4, 0xC8, 0xCC):
            return False
        else:
            place += 2 + max(2, data[place + 2] << 8 | data[place + 3])
    return False


_MOST_PASSES = 4096


def in_passes(count: int, size: int) -> Iterator[IntArray]:
    """Yield the numbers 0 to count - 1 in parts; any first few parts are about evenly spaced numbers.

    Args:
        count: of the numbers.
        size: of a part, int64 (n,), approximately; of many numbers the parts are larger.
    """
    passes = min(_MOST_PASSES, max(1, count // size))
    for first in _spread(passes):
        yield np.arange(first, count, passes, dtype=np.int64)


def fetch_each(dataset: FileDataset, numbers: IntArray) -> list[memoryview | BaseException]:
    """Read items of a local or remote dataset without a cache; one that fails does not affect the others.

    Args:
        dataset: the dataset.
        numbers: int64 (n,), numbers of the items; all their bytes are held in memory.

    Returns:
        for each item its bytes, or the error.

    Raises:
        RemoteReadError: no item can be read.
    """
    source = dataset.open_source()
    found: list[memoryview | BaseException] = []
    try:
        if dataset.reads_ahead and not source.announced:  # not one of row groups, which reads them as a whole
            return _fetch_at_once(source, dataset.spans(numbers))
        for number in numbers:
            try:
                plan, data = source.fetch(dataset.spans(np.array([number])))
            except (OSError, ValueError, EOFError) as error:
                found.append(error)
                continue
            start = int(plan.start[0])
            found.append(data[start : start + int(plan.length[0])].toreadonly())
    finally:
        source.close()
    return found


def _spread(count: int) -> list[int]:
    """Return 0 to count - 1 in bit-reversed order: any first few of them are about evenly spaced."""
    bits = max(1, (count - 1).bit_length())
    turned = (int(f"{number:0{bits}b}"[::-1], 2) for number in range(1 << bits))
    return [number for number in turned if number < count]


def evenly(count: int, most: int) -> IntArray:
    """Return up to `most` evenly spaced numbers of 0 to count - 1, with the first and the last; int64."""
    if count <= most:
        return np.arange(count, dtype=np.int64)
    return np.unique(np.linspace(0, count - 1, most).astype(np.int64))


def fetch(dataset: FileDataset, numbers: IntArray) -> list[memoryview | BaseException]:
    """Read items concurrently; one that fails does not affect the others.

    Args:
        dataset: a dataset over URLs, without a cache.
        numbers: int64 (n,), numbers of the items; all their bytes are held in memory.

    Returns:
        for each item its bytes (of a record, with the framing), or the error.

    Raises:
        RemoteReadError: no item can be read.
    """
    source = dataset.open_source()
    try:
        return _fetch_at_once(source, dataset.spans(numbers))
    finally:
        source.close()


def _fetch_at_once(source: ByteSource, spans: Spans) -> list[memoryview | BaseException]:
    """Read spans concurrently; return the bytes of each, or the error."""
    plan = source.plan_blocking(spans)
    data = memoryview(bytearray(plan.nbytes))
    failed: dict[int, BaseException] = dict(plan.failures) | dict(source.read_blocking(plan, data))
    return [
        failed[place] if place in failed else data[start : start + length].toreadonly()
        for place, (start, length) in enumerate(zip(plan.start.tolist(), plan.length.tolist(), strict=True))
    ]


_LABELS_AT_A_TIME = 256
_MOST_LABELS = 1 << 22
_MOST_NBYTES = 32 << 20
_MOST_FIELDS = 200


def inspect_shards(path: str, whole: ShardDataset, kind: str, options: Options) -> Inspection:
    """Inspect shards.

    Args:
        path: as the caller passed it.
        whole: dataset over the shards.
        kind: name of their format, with that of its samples.
        options: see `Options`.

    Raises:
        OSError: a shard cannot be read.
    """
    # Opening the shards makes the indexes that are missing.
    indexes = None if whole.index_kind is None else _sample_indexes(whole.paths, whole.index_kind)
    fine, reasons = whole.openable()
    damage = list(reasons.values())
    nbytes = sum(map(_nbytes, whole.paths))
    if not fine:
        return Inspection(
            path, kind, len(whole.paths), nbytes, 0, fields=[], sample_indexes=indexes, damage=damage
        )
    dataset = whole.only(fine).with_all_fields()
    chosen = evenly(len(dataset), options.sample)
    sample = _Sample(dataset, chosen)
    damage += sample.damage
    labels, read = _labels(dataset, options)
    length = dataset.tables.length
    images = None
    if sample.image is not None:
        tick = options.stage("decoding a sample", len(sample.images))
        images = images_in(sample.images, max_pixels=options.max_pixels, tick=tick)
    return Inspection(
        path,
        kind,
        len(whole.paths),
        nbytes,
        len(dataset),
        # The rows of a table have no places, and damage may make a length negative.
        sizes=sizes_of(length[length > 0]),
        labels=labels_of(labels),
        images=images,
        crop_indexes=None if images is None else crop_indexes(whole.crop_files()),
        fields=sample.fields(),
        sample_indexes=indexes,
        details={
            "image_field": sample.image,
            "label_field": sample.chosen(dataset.label_field) if labels else None,
            "labels_read": read if labels and read < len(dataset) else None,
            "keys": _keys(dataset),
            "members_outside": dataset.members_outside() or None,
            **_shards(whole, dataset, fine),
        },
        damage=damage,
    )


def _shards(whole: ShardDataset, dataset: ShardDataset, fine: list[int]) -> dict[str, Any]:
    if len(whole.paths) == 1:
        return {}
    samples = dict(zip(fine, map(len, dataset.tables.tables), strict=True))
    return {
        "shards": [
            {"path": redact_url(path), "samples": samples.get(number), "nbytes": _nbytes(path)}
            for number, path in enumerate(whole.paths)
        ]
    }


def _keys(dataset: ShardDataset) -> list[str]:
    """Return the keys of the first and the last sample, if they are more than numbers."""
    tables = dataset.tables.tables
    if not len(dataset) or all(isinstance(table.keys, NumberKeys) for table in tables):
        return []
    return [str(dataset.location(number).key) for number in (0, len(dataset) - 1)]


def _nbytes(path: str) -> int:
    version = version_at(path)
    try:
        return sum(map(os.path.getsize, files_of(path))) if version is None else version.nbytes
    except FileNotFoundError:  # it is one of the damaged shards
        return 0


class _Field:
    """Statistics of one field.

    Attributes:
        samples: number of samples that have it.
        sizes: bytes of each value that is stored as bytes.
        values: descriptions of other values, with their numbers.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.sizes: list[int] = []
        self.values: Counter[str] = Counter()

    def add(self, value: Any) -> None:
        self.samples += 1
        if isinstance(value, (memoryview, bytes, bytearray)):
            self.sizes.append(len(value))
        else:
            self.values[_description(value)] += 1


def _description(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {'x'.join(map(str, value.shape))}"
    return value.dtype.name if isinstance(value, np.generic) else type(value).__name__


class _Sample:
    """Some samples of a dataset, and statistics of their fields.

    Args:
        dataset: the dataset.
        chosen: int64 (n,), the samples.

    Attributes:
        image: name of the images; None if there are none.
        images: key and encoded image, or the error, of each sample with images.
        damage: descriptions of damaged samples.
    """

    def __init__(self, dataset: ShardDataset, chosen: IntArray) -> None:
        self._reader = dataset.reader
        self._found: dict[str, _Field] = {}
        self.damage: list[str] = []
        samples: list[tuple[str, dict[str, Any]]] = []
        extras = dataset.extras(chosen)
        for place, (number, data) in enumerate(
            zip(chosen.tolist(), fetch_each(dataset, chosen), strict=True)
        ):
            location = dataset.location(number)
            extra = None if extras is None else extras[place]
            try:
                if isinstance(data, BaseException):
                    raise data
                names = self._reader.names(data, extra, location)
                values = dict(zip(names, self._reader.read(data, extra, location, names), strict=True))
            except (OSError, ValueError, EOFError) as error:
                self.damage.append(f"sample {location.key}: {' '.join(str(error).split())}")
                continue
            for name, value in values.items():
                if name in self._found or len(self._found) < _MOST_FIELDS:
                    self._found.setdefault(name, _Field()).add(value)
            samples.append((str(location.key), values))
        encoded = [
            name
            for name, each in self._found.items()
            if each.sizes and self._reader.kind(name) is FieldKind.IMAGE
        ]
        preferred = self.chosen(dataset.image_field)
        self.image = preferred if preferred in encoded else next(iter(encoded), None)
        self.images = [
            (key, values[self.image])
            for key, values in samples
            if self.image in values and isinstance(values[self.image], (memoryview, bytes))
        ]

    def chosen(self, name: str) -> str | None:
        """Return the field with a name, or the first of several names "jpg;png" that there is; None without one."""
        return next((each for each in (name, *name.split(";")) if each in self._found), None)

    def fields(self) -> list[FieldFacts]:
        """Return the statistics of all fields, in the order in which they were found."""
        return [
            FieldFacts(
                name,
                self._kind(name),
                each.samples,
                sizes_of(np.array(each.sizes)),
                dict(each.values.most_common(8)),
            )
            for name, each in self._found.items()
        ]

    def _kind(self, name: str) -> str:
        """Return the kind of a field; that of values that are bytes in all samples is not only "value"."""
        kind = self._reader.kind(name)
        is_bytes = kind is FieldKind.VALUE and not self._found[name].values
        return (FieldKind.BYTES if is_bytes else kind).value


def _labels(dataset: ShardDataset, options: Options) -> tuple[Counter[float], int]:
    """Count the labels of samples, evenly spread over the dataset, until the time is over; return their number, too."""
    count = len(dataset)
    tick = options.stage("reading labels", count)
    labels: Counter[float] = Counter()
    begun, read = monotonic(), 0
    source = dataset.open_source()
    try:
        for numbers in in_passes(count, _LABELS_AT_A_TIME):
            late = options.seconds is not None and monotonic() - begun > options.seconds
            if read and (late or not labels or read >= _MOST_LABELS):
                break  # without labels: there is no such field, or it contains vectors
            for indices in _bounded(dataset, numbers):
                found = dataset.labels_at(indices, source)
                scalars = [float(label) for label in found if np.ndim(label) == 0 and _is_number(label)]
                labels.update(value for value in scalars if np.isfinite(value))
                read += len(indices)
                tick(read)
    finally:
        source.close()
    return labels, read


def _bounded(dataset: ShardDataset, numbers: IntArray) -> list[IntArray]:
    """Split samples into parts of a bounded number of bytes."""
    parts = np.cumsum(dataset.spans(numbers).length.clip(min=0)) // _MOST_NBYTES
    return np.split(numbers, np.flatnonzero(np.diff(parts)) + 1)


def _is_number(label: Any) -> bool:
    return isinstance(label, (int, float, np.number))


def _sample_indexes(paths: Sequence[str], kind: str) -> SampleIndexes:
    """Examine the sample indexes of shards at their usual places."""
    counts: Counter[IndexState] = Counter()
    for path in paths:
        counts[index_state(path, version_at(path), kind)] += 1
    return SampleIndexes(
        adjacent=counts[IndexState.BESIDE],
        cached=counts[IndexState.CACHED],
        stale=counts[IndexState.STALE],
        missing=counts[IndexState.MISSING],
    )
