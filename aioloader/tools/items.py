"""Encoded images in the items of datasets, with their keys in a crop index."""

from __future__ import annotations

import warnings
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any, NamedTuple

from aioloader.datasets.redecoded import RedecodedDataset, own_extra
from aioloader.errors import MissingFieldError
from aioloader.formats.base import image_folder
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS

if TYPE_CHECKING:
    from aioloader.abc import Decoder
    from aioloader.datasets.decoding import ImageDecoder
    from aioloader.datasets.files import FileDataset
    from aioloader.foundation.types import Array, IntArray, ItemLocation

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


@dataclass(frozen=True)
class ImageFinder:
    """Finder of the image of an item of a dataset from `keyed`; a part of its decoder, and sent to workers with it.

    Attributes:
        decoder: finds the image, see `FileDataset.image_decoder`.
    """

    decoder: ImageDecoder

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> FoundImage:
        """Return the image of an item; arguments and errors are those of a `Decoder`."""
        try:
            image = self.decoder.parse(data, own_extra(extra), location)[0]
        except MissingFieldError:
            image = NO_IMAGE
        # Some formats store pixels, or several images in one field.
        found = image if isinstance(image, (memoryview, bytes, bytearray)) else NO_IMAGE
        # Bytes are read like a memoryview; the type of the field names the usual one only.
        return FoundImage(int(extra["file"]), int(extra["key"]), found)  # type: ignore[arg-type]


def keyed(dataset: FileDataset, decoder: Decoder[Any]) -> RedecodedDataset:
    """Return the items of a dataset with another decoder, whose extras have the numbers that `ImageFinder` reads."""
    return RedecodedDataset(dataset, decoder, partial(_keys, dataset))


def _keys(dataset: FileDataset, indices: IntArray) -> dict[str, Array]:
    file, key = dataset.crop_keys(indices)
    return {"file": file, "key": key}


def images_of_folder(path: str, *, max_pixels: int | None = DEFAULT_MAX_PIXELS) -> FileDataset:
    """Return the dataset of all images of a folder, without warnings of other files in it: see its `left_out`.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such folder.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return image_folder().open((path,), max_pixels=max_pixels, crop_index=None, label=None)
