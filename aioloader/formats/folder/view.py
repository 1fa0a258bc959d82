"""Description of a folder of images for `aioloader inspect`, and its records for `aioloader view`."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.crop_index.lookup import AUTO
from aioloader.errors import UnknownFormatError
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
from aioloader.formats.image_files import has_loose_images
from aioloader.formats.inspection import (
    Inspection,
    Options,
    crop_indexes,
    evenly,
    fetch,
    images_in,
    labels_of,
    sizes_of,
)
from aioloader.formats.opening import recognize
from aioloader.formats.sample_fields import printable
from aioloader.foundation.types import ItemLocation
from aioloader.storage.local.descriptors import open_regular_file
from aioloader.storage.urls import is_url

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.abc import ByteSource


_BETWEEN_LOOKS = 4096


def inspect_folder(path: str, options: Options) -> Inspection:
    """Inspect a folder with one sub-folder of images per class, or with images directly in it.

    Raises:
        OSError: the folder cannot be read.
        UnknownFormatError: there are no images in it; the error is a ValueError.
        AmbiguousPathError: its sub-folders are splits, and not classes; the error is a ValueError.
    """
    flat = False
    try:
        recognize(path)
    except UnknownFormatError:
        flat = not is_url(path) and has_loose_images(path)
        if not flat:
            raise
    with warnings.catch_warnings(record=True) as notes:
        warnings.simplefilter("always")
        dataset = ImageFolderDataset(path, label=None if flat else AUTO)
    items = dataset.items
    if not items:
        raise ValueError(f"there are no images in {path!r}")
    seconds = options.seconds
    tick = options.stage("reading file sizes", len(items))
    sizes, begun, looked = [], monotonic(), 0
    # In the order of the names; with a time limit in random order, for an even sample.
    order = np.random.default_rng(0).permutation(len(items)) if seconds is not None else np.arange(len(items))
    for looked, number in enumerate(order.tolist(), start=1):
        sizes.append(dataset.file_nbytes(number))
        if looked % _BETWEEN_LOOKS == 0:
            tick(looked)
            if seconds is not None and monotonic() - begun > seconds:
                break
    known = np.array([size for size in sizes if size >= 0])
    chosen = evenly(len(items), options.sample).tolist()
    images = images_in(
        _sample(dataset, chosen, path),
        max_pixels=options.max_pixels,
        tick=options.stage("decoding a sample", len(chosen)),
    )
    counts = Counter(float(label) for _, label in items)
    used = [name for number, name in enumerate(dataset.synsets) if counts[number]]
    total = int(known.sum() * len(items) / max(1, len(sizes))) if len(known) else 0
    return Inspection(
        path,
        "image folder",
        len(items),
        total,
        len(items),
        images_in_all=len(items),
        sizes=sizes_of(known),
        labels=None if flat else labels_of(counts),
        label_widths={0 if flat else 1: len(items)},
        images=images,
        crop_indexes=crop_indexes(dataset.crop_files()),
        details={
            "class_names": used[:20],
            "empty_classes": len(dataset.synsets) - len(used),
            "passed_over": [str(note.message) for note in notes],
            **({"sizes_looked_at": looked} if looked < len(items) else {}),
        },
    )


def _sample(dataset: ImageFolderDataset, chosen: list[int], root: str) -> Iterator[tuple[object, Any]]:
    paths = [dataset.items[number][0] for number in chosen]
    if not is_url(root):
        yield from read_files(paths, root)
        return
    for path, data in zip(paths, fetch(dataset, np.array(chosen, np.int64)), strict=True):
        yield path[len(root.rstrip("/")) + 1 :], data


def read_files(paths: list[str], root: str) -> Iterator[tuple[object, Any]]:
    """Yield the name below a folder of each file, and its bytes or the error."""
    for path in paths:
        try:
            with open_regular_file(path) as file:
                yield os.path.relpath(path, root), file.readall()
        except OSError as error:
            yield os.path.relpath(path, root), error


def inspect_image(path: str, options: Options) -> Inspection:
    """Inspect a single image.

    Raises:
        OSError: it cannot be read.
    """
    size = os.path.getsize(path)
    images = images_in(read_files([path], os.path.dirname(path) or "."), max_pixels=options.max_pixels)
    return Inspection(
        path, "image", 1, size, 1, images_in_all=1, sizes=sizes_of(np.array([size])), images=images
    )


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
        location = ItemLocation(printable(self.key(position)), path)
        bare = Record(position, location, labels=() if self._flat else (float(label),))
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
