"""Check of a dataset that decodes every image in parallel and reports the damaged ones.

The images are read by an ordinary loader that skips failed samples; its errors are the result. Of a record file it
reads the valid records that `recordio.verify` found, by offset and length, so that damage to the file or its index
hides none of them.

Encoded images in the items of datasets, with their keys in a crop index: of records, of files, of samples of shards.

Each finder is a part of a decoder, and is sent to the workers with it. It finds the key of an item in its extra.

Check of shards of other formats than RecordIO: their structure, their samples, and every field of these.

A dataset checks the structure of its files itself, see `ShardDataset.check_shard`. Samples are read by an ordinary
loader that skips failed ones; its errors are the result.
"""

from __future__ import annotations

import os
import warnings
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from aioloader.datasets.decoding import decode_here
from aioloader.datasets.fields import FieldKind, FieldReader, as_label, field_value
from aioloader.datasets.files import FileDataset
from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.formats.folder.dataset import ImageFolderDataset
from aioloader.formats.recordio.dataset import ImageRecordDataset
from aioloader.formats.recordio.heads import read_heads
from aioloader.foundation.types import Array, IntArray, ItemLocation, Spans
from aioloader.loader.sync_loader import DataLoader
from aioloader.storage.urls import redact_url
from aioloader.tools.paths import record_files_at, version_at
from aioloader.tools.samples import evenly, fetch_each
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS
from aioloader.transforms.formats import read_header
from recordio import extract, unpack

if TYPE_CHECKING:
    from collections.abc import Callable

    import recordio
    from aioloader.abc import ByteSource, Decoder
    from aioloader.datasets.base import Dataset
    from aioloader.datasets.shard_dataset import ShardDataset
    from aioloader.errors import SampleError


NO_IMAGE = "no encoded image in the sample"
"""Reason why a sample has no entry."""


class FoundImage(NamedTuple):
    """Image of an item.

    Attributes:
        number: number of its crop index.
        key: its key there.
        data: the encoded image, or the reason why there is none.
    """

    number: int
    key: int
    data: memoryview | str


class ImageFinder(Protocol):
    """Finder of the image of an item. Picklable."""

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> FoundImage:
        """Return the image of an item; arguments and errors are those of a `Decoder`."""
        ...


@dataclass(frozen=True)
class ImageOfRecord:
    """Finder of the image of a record, whose extra is the number of its index and its key."""

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> FoundImage:
        payload: Any = extract(data, path=location.path, offset=location.offset or 0)
        number, key = map(int, extra)
        return FoundImage(number, key, unpack(payload)[1])


@dataclass(frozen=True)
class ImageOfFile:
    """Finder of the image that is a file, whose extra is its key."""

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> FoundImage:
        return FoundImage(0, int(extra), data)


@dataclass(frozen=True)
class ImageOfSample:
    """Finder of an image of a sample; its extra is that of `SampleImages`.

    Attributes:
        reader: of the fields of the sample.
        name: of the image.
    """

    reader: FieldReader
    name: str

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> FoundImage:
        own = extra["extra"] if "extra" in extra.dtype.names else None
        try:
            (image,) = self.reader.read(data, own, location, (self.name,))
        except MissingFieldError:
            image = NO_IMAGE
        # Some formats store pixels, or several images in one field.
        found = image if isinstance(image, (memoryview, bytes, bytearray)) else NO_IMAGE
        # Bytes are read like a memoryview; the type of the field names the usual one only.
        return FoundImage(int(extra["file"]), int(extra["key"]), found)  # type: ignore[arg-type]


class SampleImages(FileDataset):
    """Dataset of the images of the samples of shards.

    Args:
        dataset: over the shards.
        decoder: makes the samples, by an `ImageOfSample`.
    """

    def __init__(self, dataset: ShardDataset, decoder: Decoder[Any]) -> None:
        super().__init__()
        self._dataset = dataset
        self._decoder = decoder

    def __len__(self) -> int:
        return len(self._dataset)

    @property
    def decoder(self) -> Decoder[Any]:
        return self._decoder

    def open_source(self) -> ByteSource:
        return self._dataset.open_source()

    @property
    def reads_ahead(self) -> bool:
        return self._dataset.reads_ahead

    def spans(self, indices: IntArray) -> Spans:
        return self._dataset.spans(indices)

    def crop_keys(self, indices: IntArray) -> tuple[IntArray, IntArray]:
        """Return the number of the shard of each sample, and its key there; see `ShardDataset.crop_keys`."""
        return self._dataset.crop_keys(indices)

    def extras(self, indices: IntArray) -> Array:
        """Return the number of the shard, the key of the sample, and its own extra if it has one."""
        own = self._dataset.extras(indices)
        columns: list[Any] = [("file", np.int64), ("key", np.int64)]
        if own is not None:
            columns.append(("extra", own.dtype, own.shape[1:]))
        extras = np.empty(len(indices), columns)
        extras["file"], extras["key"] = self.crop_keys(indices)
        if own is not None:
            extras["extra"] = own
        return extras

    def location(self, index: int) -> ItemLocation:
        return self._dataset.location(index)


_LOOKED_AT_RECORDS = 64
_BATCH = 64
_LABEL = np.dtype("<f4")


@dataclass(frozen=True, slots=True)
class ImageCheck:
    """Result of decoding all images.

    Attributes:
        images: number of images that were decoded, damaged ones included.
        errors: errors of the damaged images, in the order of the file: key, offset and path, and the reason.
    """

    images: int
    errors: list[SampleError] = field(default_factory=list)

    def facts(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {"images": self.images, "image_errors": [error.facts() for error in self.errors]}


class ValidImages(ImageRecordDataset):
    """Dataset of the images in the valid records of a file.

    Args:
        report: result of `recordio.verify` for the file.
        path: path of the file, if it is a URL: reports do not contain the signature of a URL.
        max_pixels: see `ImageRecordDataset`.

    Raises:
        OSError: the file cannot be read.
    """

    def __init__(
        self,
        report: recordio.Report,
        path: str | None = None,
        *,
        max_pixels: int | None = DEFAULT_MAX_PIXELS,
    ) -> None:
        super().__init__(path or report.path, max_pixels=max_pixels, label_dtype="float32", crop_index=None)
        self._report = report
        self._numbers = self._find_images()

    def __len__(self) -> int:
        return len(self._numbers)

    def spans(self, indices: IntArray) -> Spans:
        chosen = self._numbers[indices]
        offset, length = self._report.offsets[chosen], self._report.lengths[chosen]
        return Spans(np.zeros(len(offset), np.int64), offset, length)

    def location(self, index: int) -> ItemLocation:
        number = int(self._numbers[index])
        return ItemLocation(self._report.key_at(number), self._report.path, int(self._report.offsets[number]))

    def _find_images(self) -> IntArray:
        """Find the valid records with images: in a file of images, all but those with only a header.

        Returns:
            int64 (n,), numbers of records in the order of the file; empty if the records do not contain images.
        """
        report = self._report
        chosen = evenly(report.records, _LOOKED_AT_RECORDS)
        source = self.open_source()
        try:
            if not any(_is_image(source, self._framed(number)) for number in chosen.tolist()):
                return chosen[:0]
        finally:
            source.close()
        heads = read_heads(self._path, report.offsets, version=self._versions[0])
        # Such records refer to ranges of others; see `aioloader.formats.recordio.heads`.
        return np.flatnonzero(~(heads.bare & (heads.flag == 2))).astype(np.int64)

    def _framed(self, number: int) -> Spans:
        one = slice(number, number + 1)
        return Spans(np.zeros(1, np.int64), self._report.offsets[one], self._report.lengths[one])


class ImageFolder(ImageFolderDataset):
    """Dataset of all images of a folder, which does not warn of other files in the folder: see `left_out`.

    Args:
        path: the folder.
        max_pixels: see `ImageFolderDataset`.

    Raises:
        FileNotFoundError: there is no such folder.
    """

    def __init__(self, path: str, *, max_pixels: int | None = DEFAULT_MAX_PIXELS) -> None:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            super().__init__(path, max_pixels=max_pixels, crop_index=None, label=None)


def _check_label(image: Array, label: Any = 0) -> np.uint8:
    """Raise an error if the label of a decoded image is not finite."""
    if not np.isfinite(label).all():
        raise ValueError(f"the label {label} is not a finite number")
    return np.uint8(0)


def _is_image(source: ByteSource, spans: Spans) -> bool:
    import recordio

    try:
        plan, data = source.fetch(spans)
        start = int(plan.start[0])
        payload: Any = recordio.extract(data[start : start + int(plan.length[0])])
        read_header(recordio.unpack(payload)[1])
    except (ValueError, EOFError):  # not an image record, or a damaged one
        return False
    return True


def check(
    dataset: Dataset,
    *,
    num_workers: int | None = None,
    executor: str = "process",
    tick: Callable[[int], Any] | None = None,
) -> ImageCheck:
    """Decode every image of a dataset, and check its label.

    Args:
        dataset: dataset of images and labels, such as `ValidImages`.
        num_workers: workers of the loader; None: one per core.
        executor: "process", "thread" or "inline".
        tick: called with the number of images done so far.

    Raises:
        ValueError: an option is not allowed.
    """
    errors = decode_all(
        dataset.transform(_check_label), num_workers=num_workers, executor=executor, tick=tick
    )
    return ImageCheck(len(dataset), errors)


def decode_all(
    dataset: Dataset,
    *,
    num_workers: int | None,
    executor: str,
    tick: Callable[[int], Any] | None,
    add: Callable[[Array], object] | None = None,
) -> list[SampleError]:
    """Make every sample of a dataset once.

    Args:
        dataset: its samples are integers.
        num_workers, executor, tick: as for `check`.
        add: called with each batch, (n,); valid during the call only.

    Returns:
        the errors of the samples that could not be made, in the order of the dataset.

    Raises:
        ValueError: an option is not allowed.
    """
    count = len(dataset)
    if not count:
        return []
    done = 0
    loader: DataLoader[Array]
    batch: Array
    with DataLoader(dataset, _BATCH, num_workers=num_workers, executor=executor, on_error="skip") as loader:
        for batch in loader:
            done += len(batch)
            if add is not None:
                add(batch)
            if tick is not None:
                tick(done + loader.stats().skipped)
        errors = loader.errors
    if tick is not None:
        tick(count)
    return sorted(errors, key=lambda error: error.index)


def find_files(words: list[str]) -> list[str]:
    """Resolve arguments of a command line to record files and folders.

    Args:
        words: paths or URLs, patterns such as "shard-*.rec", and folders; a folder with .rec files means those files.

    Returns:
        Paths without repetitions; those of a pattern or a folder sorted by name.

    Raises:
        FileNotFoundError: there is no such file or folder, or no file matches the pattern.
    """
    found: list[str] = []
    for word in words:
        path = os.path.expanduser(word)
        found += record_files_at(path) or [path]
    return list(dict.fromkeys(found))


_MOST_FAULTS = 1000
_LOOKED_AT = 16
# A sample of the check is one number: that of the shard, and in these lowest bits that of the images.
_COUNT_BITS = 20
_MOST_IMAGES = (1 << _COUNT_BITS) - 1


@dataclass(frozen=True, slots=True)
class ShardReport:
    """Result of checking the structure of a shard.

    Attributes:
        path: the shard.
        samples: number of samples without a fault.
        nbytes: size of the shard.
        faults: the first faults, in the order in which they were found.
        further: number of further faults.
    """

    path: str
    samples: int
    nbytes: int
    faults: list[SampleFormatError] = field(default_factory=list)
    further: int = 0

    @property
    def ok(self) -> bool:
        """Return whether the shard is valid."""
        return not self.faults

    def facts(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {
            "path": self.path,
            "ok": self.ok,
            "samples": self.samples,
            "size": self.nbytes,
            "problems": [_fault_facts(fault) for fault in self.faults],
            "further_problems": self.further,
        }

    def lines(self) -> list[str]:
        """Return a line for each fault."""
        lines = [str(fault) if fault.path else f"{self.path}: {fault}" for fault in self.faults]
        if self.further:
            lines.append(f"{self.path}: {self.further:,} further problems")
        return lines

    def summary(self) -> str:
        """Return the result in a line."""
        count = len(self.faults) + self.further
        valid = "valid" if self.samples else "valid, but empty"
        state = valid if self.ok else f"{count:,} problem{'s' if count > 1 else ''}"
        return f"{self.path}: {self.samples:,} samples, {self.nbytes:,} bytes, {state}"


def _fault_facts(fault: SampleFormatError) -> dict[str, Any]:
    return {
        "offset": fault.offset,
        "key": None if fault.key is None else str(fault.key),
        "message": fault.reason,
        "expected": None if fault.expected is None else str(fault.expected),
        "found": None if fault.found is None else str(fault.found),
    }


def check_shard(
    dataset: ShardDataset, number: int, *, tick: Callable[[int], object] | None = None
) -> ShardReport:
    """Read a whole shard and report its faults. Bounded in memory: of many faults the first ones are kept.

    Args:
        dataset: over the shard.
        number: of the shard.
        tick: called now and then with the number of bytes read so far.

    Raises:
        OSError: the shard is there, and cannot be read.
        ValueError: shards of this format cannot be checked.
    """
    path = dataset.paths[number]
    try:
        version = version_at(path)
        nbytes = os.path.getsize(path) if version is None else version.nbytes
    except FileNotFoundError:
        missing = SampleFormatError("the data set names this file, and it is missing", path=redact_url(path))
        return ShardReport(redact_url(path), 0, 0, [missing])
    faults: list[SampleFormatError] = []
    further = 0
    checking = dataset.check_shard(number, tick)
    while True:
        try:
            fault = next(checking)
        except StopIteration as stop:
            samples: int = stop.value
            return ShardReport(redact_url(path), samples, nbytes, faults, further)
        if len(faults) < _MOST_FAULTS:
            faults.append(fault)
        else:
            further += 1


class _Sample(NamedTuple):
    """Arguments of a `FieldReader`.

    Attributes:
        data: the bytes of the sample.
        extra: its row of the extras of the dataset, or None.
        location: of the sample, for errors.
    """

    data: memoryview
    extra: Any
    location: ItemLocation

    def value(self, reader: FieldReader, name: str) -> Any:
        """Return a field, see `FieldReader.read`."""
        (value,) = reader.read(self.data, self.extra, self.location, (name,))
        return value

    def check_image(self, reader: FieldReader, name: str) -> None:
        """Check that a field is one image, as a loader of images and labels needs it.

        Raises:
            ValueError: the sample has no such field, or the field has several values or none.
        """
        value = self.value(reader, name)
        if isinstance(value, list):
            raise SampleFormatError(
                f"the field {name!r} has not one image as those of the first samples: `aioloader.images` refuses the "
                "sample; a dataset with fields=(...) has lists of images",
                path=self.location.path,
                offset=self.location.offset,
                key=self.location.key,
                expected="1 image",
                found=f"{len(value)} images",
            )

    def label(self, reader: FieldReader, name: str) -> Any:
        """Return a field as a label.

        Raises:
            ValueError: the sample has no such field, or it is neither a number nor numbers.
        """
        value = field_value(self.value(reader, name), reader.kind(name), name, self.location)
        return as_label(value, None, name, self.location)


@dataclass(frozen=True)
class _EveryField:
    """Decoder of a sample to numbers of its shard and of its images, which are all decoded, as is every other field.

    Attributes:
        reader: of the fields.
        image: name of a field that must be one image in each sample; None: there is none.
        label: name of a field that each sample must have, and that must be a finite number, or numbers; None: there is
            none.
        max_pixels: see `aioloader.transforms.decode_image`.
    """

    reader: FieldReader
    image: str | None
    label: str | None
    max_pixels: int | None

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> np.int64:
        own = extra["extra"] if "extra" in extra.dtype.names else None
        sample = _Sample(data, own, location)
        if self.image is not None:
            sample.check_image(self.reader, self.image)
        if self.label is not None:
            label = sample.label(self.reader, self.label)
            if not np.isfinite(label).all():
                raise ValueError(f"the label {label} is not a finite number")
        names = self.reader.names(data, own, location)
        images = 0
        for name, value in zip(names, self.reader.read(data, own, location, names), strict=True):
            kind = self.reader.kind(name)
            if kind is FieldKind.IMAGE:
                images += self._decode(value, location)
                continue
            field_value(value, kind, name, location)
        return np.int64(int(extra["file"]) << _COUNT_BITS | min(images, _MOST_IMAGES))

    def _decode(self, value: Any, location: ItemLocation) -> int:
        if isinstance(value, np.ndarray):  # stored as pixels
            return 1
        if isinstance(value, list):
            return sum(self._decode(each, location) for each in value)
        decode_here(value, flag=1, exif="apply", max_pixels=self.max_pixels, path=location.path)
        return 1


def check_samples(
    dataset: ShardDataset,
    *,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    num_workers: int | None = None,
    executor: str = "process",
    tick: Callable[[int], Any] | None = None,
) -> list[ImageCheck]:
    """Decode every image and every other field of all samples, and check the labels.

    A field that the dataset's options name as image or label must be in every sample if it is in one of the first: one
    image, and as label a number, or numbers. A field that has several images in each of the first is not checked so.

    Args:
        dataset: over shards whose samples can be found.
        max_pixels: larger images count as damaged; None for no limit.
        num_workers: workers of the loader; None: one per core.
        executor: "process", "thread" or "inline".
        tick: called with the number of samples done so far.

    Returns:
        the result for each shard; a damaged sample counts as one image.

    Raises:
        OSError, SampleFormatError: the samples of a shard cannot be found.
    """
    dataset = dataset.with_all_fields()
    image, label = dataset.image_field, dataset.label_field
    has_images = _is_in_first(dataset, lambda reader, sample: sample.check_image(reader, image))
    has_labels = _is_in_first(dataset, lambda reader, sample: sample.label(reader, label))
    decoder = _EveryField(
        dataset.reader, image if has_images else None, label if has_labels else None, max_pixels
    )
    counts = np.zeros(len(dataset.paths), np.int64)

    def add(batch: Array) -> None:
        np.add.at(counts, batch >> _COUNT_BITS, batch & _MOST_IMAGES)

    images = SampleImages(dataset, decoder)
    errors = decode_all(images, num_workers=num_workers, executor=executor, tick=tick, add=add)
    of_shard: list[list[SampleError]] = [[] for _ in dataset.paths]
    for error in errors:
        of_shard[dataset.tables.locate(error.index)[0]].append(error)
    return [
        ImageCheck(count + len(some), some) for count, some in zip(counts.tolist(), of_shard, strict=True)
    ]


def _is_in_first(dataset: ShardDataset, read: Callable[[FieldReader, _Sample], object]) -> bool:
    """Return whether a value can be read from one of the first samples."""
    numbers = np.arange(min(_LOOKED_AT, len(dataset)))
    extras = dataset.extras(numbers)
    reader = dataset.reader
    for number, data in enumerate(fetch_each(dataset, numbers)):
        if isinstance(data, BaseException):  # the check of all samples reports it
            continue
        try:
            read(reader, _Sample(data, None if extras is None else extras[number], dataset.location(number)))
        except (ValueError, EOFError):
            continue
        return True
    return False
