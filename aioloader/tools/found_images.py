"""Encoded images in the items of datasets, with their keys in a crop index: of records, of files, of samples of shards.

Each finder is a part of a decoder, and is sent to the workers with it. It finds the key of an item in its extra.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from aioloader.datasets.files import FileDataset
from aioloader.errors import MissingFieldError
from recordio import extract, unpack

if TYPE_CHECKING:
    from aioloader.abc import Decoder, FetchingByteSource
    from aioloader.datasets.fields import FieldReader
    from aioloader.datasets.shard_dataset import ShardDataset
    from aioloader.foundation.types import Array, IntArray, ItemLocation, Spans

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

    def open_source(self) -> FetchingByteSource:
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
