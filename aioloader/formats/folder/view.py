"""Collection of a folder of images with one sub-folder per class."""

from __future__ import annotations

import os
import warnings
from typing import TYPE_CHECKING

import numpy as np

from aioloader.crop_index.lookup import AUTO
from aioloader.formats.collection import (
    Collection,
    Contents,
    LabelChunk,
    NoSuchRecordError,
    Record,
    failed,
    read_bytes,
    with_image,
)
from aioloader.formats.folder.dataset import ImageFolderDataset
from aioloader.formats.sample_fields import printable
from aioloader.storage.urls import is_url

if TYPE_CHECKING:
    from aioloader.abc import ByteSource


class ImageFolder(Collection):
    """Collection of an `ImageFolderDataset`.

    No record is known before `load` has listed the folder.

    Args:
        path: the folder.
        max_pixels: larger images are refused.
        flat: its images have no labels.
    """

    kind = "folder of images"

    def __init__(self, path: str, *, max_pixels: int | None, flat: bool = False) -> None:
        self.path = path
        self.problems: list[str] = []
        self._max_pixels = max_pixels
        self._dataset: ImageFolderDataset | None = None
        self._source: ByteSource | None = None
        self._places: dict[str, int] | None = None
        self._flat = flat

    def load(self) -> None:
        with warnings.catch_warnings(record=True) as notes:
            warnings.simplefilter("always")
            label = None if self._flat else AUTO
            dataset = ImageFolderDataset(self.path, max_pixels=self._max_pixels, crop_index=None, label=label)
        self.problems.extend(str(note.message) for note in notes)
        self.decoder = dataset.decoder
        # Without a cache the source is one of these two.
        self._source = dataset.open_source()
        self.classes = {float(number): printable(name) for number, name in enumerate(dataset.synsets)}
        self._dataset = dataset  # assigned last: `known` reads it in other threads

    @property
    def count(self) -> int | None:
        return None if self._dataset is None else len(self._dataset)

    @property
    def known(self) -> int:
        return self.count or 0

    def _item(self, position: int) -> tuple[str, int]:
        if self._dataset is None or not 0 <= position < self.known:
            raise NoSuchRecordError(f"there is no image {position}: the folder has {self.known:,}")
        return self._dataset.items[position]

    def key(self, position: int) -> str:
        path = self._item(position)[0]
        if is_url(path):
            return path[len(self.path.rstrip("/")) + 1 :]
        return os.path.relpath(path, os.path.expanduser(self.path)).replace(os.sep, "/")

    def find(self, key: str, file: int | None = None) -> int:
        if self._places is None:
            self._places = {str(self.key(place)): place for place in range(self.known)}
        found = self._places.get(key)
        if found is None and key.isascii() and key.isdigit() and len(key) < 20 and int(key) < self.known:
            found = int(key)
        if found is None:
            raise NoSuchRecordError(f"no image is named {key[:80]!r}, and the folder has only {self.known:,}")
        return found

    def read(self, position: int) -> Contents:
        path, label = self._item(position)
        bare = Record(
            position, printable(self.key(position)), path, None, labels=() if self._flat else (float(label),)
        )
        assert self._dataset is not None
        assert self._source is not None
        try:
            data = read_bytes(self._source, self._dataset.spans(np.array([position], np.int64)))
        except (OSError, ValueError, EOFError) as error:
            return Contents(failed(bare, error))
        return Contents(with_image(bare, data), data, data, label)

    def label_chunk(self, start: int, stop: int) -> LabelChunk:
        assert self._dataset is not None
        labels = self._dataset.extras(np.arange(start, stop, dtype=np.int64)).astype(np.float32)
        if self._flat:
            labels[:] = np.nan
        return LabelChunk(labels, np.empty(0, np.int64), np.empty(0, np.float32))

    def close(self) -> None:
        if self._source is not None:
            self._source.close()
