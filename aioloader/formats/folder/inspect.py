"""Inspection of folders of images."""

from __future__ import annotations

import os
import warnings
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.crop_index.lookup import AUTO
from aioloader.errors import UnknownFormatError
from aioloader.formats.folder.dataset import ImageFolderDataset
from aioloader.formats.image_files import has_loose_images
from aioloader.formats.inspection import Inspection, Options, crop_indexes, images_in, labels_of, sizes_of
from aioloader.formats.opening import recognize
from aioloader.formats.sampling import evenly, fetch
from aioloader.storage.local.descriptors import open_regular_file
from aioloader.storage.urls import is_url

if TYPE_CHECKING:
    from collections.abc import Iterator

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
        crop_indexes=crop_indexes([path], is_folder=True),
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
