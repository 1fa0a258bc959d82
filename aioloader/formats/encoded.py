"""Base class of datasets whose samples a library hands out by index: encoded images, or any bytes, and labels."""

from __future__ import annotations

import functools
import io
import os
from contextlib import suppress
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.abc import ByteSource
from aioloader.datasets.decoding import ImageOptions
from aioloader.datasets.fields import FieldKind
from aioloader.datasets.shard_dataset import ShardDataset
from aioloader.datasets.shard_tables import NumberKeys, ShardTable
from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.foundation.protocols import redefinable
from aioloader.foundation.threads import Threads
from aioloader.foundation.types import WHOLE_FILE, ItemLocation, ReadPlan, Spans
from aioloader.foundation.validation import advises
from aioloader.storage.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence
    from typing import Unpack

    from aioloader.datasets.decoding import ShardKeywords
    from aioloader.foundation.types import IntArray
    from aioloader.storage.remote.transport import Version

IMAGE, LABEL = "image", "label"
# Copying this many bytes takes less time than a hop to a thread.
_COPIED_HERE = 1 << 19
_PREFIX = 4
_LABELS_AT_A_TIME = 1024
_BYTES = (bytes, bytearray, memoryview)


class EncodedDataset(ShardDataset):
    """Base class of datasets over encoded images, or any bytes, that a library hands out by index.

    A subclass defines ``__len__`` and `read`, and perhaps `labels` and `location`; a `Format` opens it. Its samples are
    (image, label), or the image alone if the class has no `labels`. The library is called in a thread, many items at a
    time, one call at a time for each loader; images are decoded in the loader's workers, which never call it.

    Args:
        paths: the files, or the folder, for errors.
        image: name of the field of the image.
        label: None: samples without labels.
        fields: see `TarDataset`; the fields are "image" and "label".
        flag, exif, max_pixels, label_dtype, dct_scaling, crop_index: see `ImageRecordDataset`.
        cache, cache_limit: not allowed, because no files are read here.

    Raises:
        ValueError: an option is not allowed.
    """

    @advises({}, ImageOptions)
    def __init__(
        self,
        paths: str | os.PathLike[str] | Sequence[str],
        *,
        image: str = IMAGE,
        label: str | None = LABEL,
        fields: str | Sequence[str] | None = None,
        **options: Unpack[ShardKeywords],
    ) -> None:
        given = [paths] if isinstance(paths, (str, os.PathLike)) else paths
        if options.get("cache") is not None:
            raise ValueError(
                f"{type(self).__name__} reads no files of its own, so it has no cache: leave out cache="
            )
        has_labels = type(self).labels is not EncodedDataset.labels
        super().__init__(
            [os.fspath(path) for path in given],
            image=image,
            label=label if has_labels else None,
            fields=fields,
            **options,
        )

    # -- what a subclass defines ---------------------------------------------------------------------------------------

    def __len__(self) -> int:
        """Return the number of samples."""
        raise NotImplementedError(f"{type(self).__name__} does not define __len__")

    def read(self, indices: Sequence[int]) -> Sequence[bytes]:
        """Return the encoded images, or other bytes, of some samples. Blocking; called in a thread.

        Raises:
            OSError, ValueError: they cannot be read. Then each of them is read by itself, so that the error is that of
                its sample.
        """
        raise NotImplementedError(f"{type(self).__name__} does not define read()")

    @redefinable
    def labels(self, indices: Sequence[int] | None = None) -> Any:
        """Return the labels of some samples, or of all: a number, numbers or a text for each. Blocking, as `read`.

        A subclass defines ``labels(indices)``; it is called with all indices where they are left out.

        Raises:
            ValueError: this dataset has no labels.
        """
        raise self._unlabelled()

    @redefinable
    def location(self, index: int) -> Any:
        """Return where a sample is, for errors; a subclass may return a text, such as its key in a database."""
        return ItemLocation(str(index), redact_url(self.paths[0]), None)

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        labels, location = vars(cls).get("labels"), vars(cls).get("location")
        if labels is not None:

            @functools.wraps(labels)
            def labels_of(self: EncodedDataset, indices: Sequence[int] | None = None) -> Any:
                found = labels(self, range(len(self)) if indices is None else indices)
                return np.asarray(found) if indices is None else found

            cls.labels = labels_of  # type: ignore[method-assign]  # a subclass is made here
        if location is not None:

            @functools.wraps(location)
            def location_of(self: EncodedDataset, index: int) -> ItemLocation:
                found = location(self, index)
                return (
                    found
                    if isinstance(found, ItemLocation)
                    else ItemLocation(found, redact_url(self.paths[0]), None)
                )

            cls.location = location_of  # type: ignore[method-assign]  # as above

    # -- a dataset over shards -----------------------------------------------------------------------------------------

    def _open_table(self, path: str, version: Version | None) -> ShardTable:
        count = len(self) if path == self.paths[0] else 0
        zeros = np.zeros(count, np.int64)
        nbytes = os.path.getsize(path) if os.path.isfile(path) else 0
        return ShardTable(path=path, nbytes=nbytes, offset=zeros, length=zeros, keys=NumberKeys())

    def _reader(self) -> EncodedReader:
        return EncodedReader()

    def crop_keys(self, indices: IntArray) -> tuple[IntArray, IntArray]:
        """Return the number of the only shard, and the numbers of the samples."""
        return np.zeros_like(indices), indices

    def spans(self, indices: IntArray) -> Spans:
        return Spans(np.zeros(len(indices), np.int64), indices, np.full(len(indices), WHOLE_FILE, np.int64))

    def open_source(self) -> ByteSource:
        return EncodedByteSource(self, labelled=self._label is not None)

    @property
    def reads_ahead(self) -> bool:
        return False

    @property
    def label_nbytes(self) -> int:
        """Return the number of bytes that `labels` reads: none of the images."""
        return 0

    def labels_at(self, indices: IntArray, source: ByteSource) -> list[Any]:
        """Return the label of each sample; see `ShardDataset.labels_at`."""
        decoder = self._image_decoder()
        found = []
        for index, label in zip(indices.tolist(), self.labels(indices.tolist()), strict=True):
            try:
                found.append(decoder.label_of(_plain(label), self.location(index)))
            except ValueError as error:
                found.append(error)
        return found

    def label_batches(self) -> Sequence[IntArray]:
        """Return the samples whose labels are read together."""
        indices = np.arange(len(self))
        return (
            np.split(indices, range(_LABELS_AT_A_TIME, len(indices), _LABELS_AT_A_TIME))
            if len(indices)
            else []
        )

    def check_shard(
        self, number: int, tick: Callable[[int], object] | None = None
    ) -> Generator[SampleFormatError, None, int]:
        """Read all samples, and yield an error for each that cannot be read; see `ShardDataset.check_shard`."""
        good = 0
        for indices in self.label_batches():
            for index, found in zip(indices.tolist(), read_each(self, indices.tolist()), strict=True):
                if isinstance(found, Exception):
                    key, path, _ = self.location(index)
                    yield SampleFormatError(str(found), path=path, key=key)
                else:
                    good += 1
        return good


@dataclass(frozen=True)
class EncodedReader:
    """Reader of the fields of one sample: see `aioloader.datasets.fields.FieldReader`."""

    def read(self, data: memoryview, extra: Any, location: ItemLocation, names: tuple[str, ...]) -> list[Any]:
        """Return the values of some fields."""
        end = _PREFIX + int.from_bytes(data[:_PREFIX], "little")
        values = []
        for name in names:
            if name == IMAGE:
                values.append(data[end:])
            elif name == LABEL and end > _PREFIX:
                values.append(_plain(np.lib.format.read_array(io.BytesIO(data[_PREFIX:end]))))
            else:
                raise MissingFieldError(
                    name, self.names(data, extra, location), key=location.key, path=location.path
                )
        return values

    def names(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[str, ...]:
        """Return the names of the fields."""
        return (IMAGE, LABEL) if int.from_bytes(data[:_PREFIX], "little") else (IMAGE,)

    def kind(self, name: str) -> FieldKind:
        """Return the kind of a field."""
        return FieldKind.IMAGE if name == IMAGE else FieldKind.VALUE


class EncodedByteSource(ByteSource):
    """Byte source of an `EncodedDataset`; an item is the length of its label, the label as a numpy file, and the image.

    Args:
        dataset: whose `read` is called, in one thread.
        labelled: items have their labels.
    """

    fetches = blocks = True

    def __init__(self, dataset: EncodedDataset, *, labelled: bool) -> None:
        self._dataset = dataset
        self._labelled = labelled
        self._threads: Threads | None = None

    async def plan(self, spans: Spans) -> ReadPlan:
        """Read the items in a thread; on cancellation it waits for the library's call."""
        return await self._started().run(self.plan_blocking, spans)

    def plan_blocking(self, spans: Spans) -> ReadPlan:
        """Read the items."""
        indices = spans.offset.tolist()
        found = read_each(self._dataset, indices)
        labels: Sequence[Any] = self._dataset.labels(indices) if self._labelled else ()
        items = []
        failures: list[tuple[int, BaseException]] = []
        for place, data in enumerate(found):
            if isinstance(data, Exception):
                failures.append((place, data))
                items.append((b"", b""))
            else:
                items.append((_label_bytes(labels[place]) if self._labelled else bytes(_PREFIX), data))
        length = np.array([len(label) + len(data) for label, data in items], np.int64)
        end = np.cumsum(length)
        return ReadPlan(int(length.sum()), end - length, length, reads=items, failures=failures)

    async def read(self, plan: ReadPlan, out: memoryview) -> list[tuple[int, BaseException]]:
        """Copy the items."""
        if plan.nbytes <= _COPIED_HERE:
            return self.read_blocking(plan, out)
        return await self._started().run(self.read_blocking, plan, out)

    def read_blocking(self, plan: ReadPlan, out: memoryview) -> list[tuple[int, BaseException]]:
        """Copy the items."""
        for start, (label, data) in zip(plan.start.tolist(), plan.reads, strict=True):
            middle = start + len(label)
            out[start:middle] = label
            out[middle : middle + len(data)] = data
        return []

    def _started(self) -> Threads:
        if self._threads is None:
            self._threads = Threads(1, "aioloader-encoded")
        return self._threads

    def close(self) -> None:
        """End the thread."""
        if self._threads is not None:
            self._threads.close()
            self._threads = None


def read_each(dataset: EncodedDataset, indices: list[int]) -> list[bytes | Exception]:
    """Return the bytes of each sample, or its error."""
    with suppress(OSError, ValueError, LookupError, EOFError):  # those of each are found below
        found = list(dataset.read(indices))
        if len(found) == len(indices) and all(isinstance(each, _BYTES) for each in found):
            return [bytes(each) for each in found]
    return [_read_one(dataset, index) for index in indices]


def _read_one(dataset: EncodedDataset, index: int) -> bytes | Exception:
    name = type(dataset).__name__
    try:
        found = list(dataset.read([index]))
    except (OSError, ValueError, LookupError, EOFError) as error:
        return error
    if len(found) != 1:
        return SampleFormatError(f"{name}.read() returned {len(found)} values for one index")
    if not isinstance(found[0], _BYTES):
        return SampleFormatError(f"{name}.read() must return bytes, and returned {type(found[0]).__name__}")
    return bytes(found[0])


def _plain(label: Any) -> Any:
    """Return a label as the type of a field: a text, a number or an array."""
    if isinstance(label, np.ndarray) and not label.ndim:
        return label.item()
    return label


def _label_bytes(label: Any) -> bytes:
    file = io.BytesIO(bytes(_PREFIX))
    file.seek(_PREFIX)
    array = np.asarray(label)
    if array.dtype.hasobject:
        raise ValueError(f"a label is a number, a text or an array of numbers, got {label!r}")
    np.lib.format.write_array(file, array)
    data = bytearray(file.getbuffer())
    data[:_PREFIX] = (len(data) - _PREFIX).to_bytes(_PREFIX, "little")
    return bytes(data)
