"""Check of shards of other formats than RecordIO: their structure, their samples, and every field of these.

A dataset checks the structure of its files itself, see `ShardDataset.check_shard`. Samples are read by an ordinary
loader that skips failed ones; its errors are the result.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.datasets.decoding import decode_here
from aioloader.datasets.fields import FieldKind, FieldReader, as_label, field_value
from aioloader.errors import SampleFormatError
from aioloader.storage.urls import redact_url
from aioloader.tools.found_images import SampleImages
from aioloader.tools.paths import version_at
from aioloader.tools.samples import fetch_each
from aioloader.tools.verify import ImageCheck, decode_all
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.datasets.shard_dataset import ShardDataset
    from aioloader.errors import SampleError
    from aioloader.foundation.types import Array, ItemLocation

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
